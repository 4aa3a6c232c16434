"""Whether the program's table of a task is the one that the checker states."""

from lengthgen_jax.proofs import checker


def same_tables(data, config, num_tokens, has_source) -> bool:
  """Whether a table has the layout of the task that a config names and, for all
  symbols, its outputs and accepting states, whatever the states are called."""
  stated = checker.stated_table(config)
  names = {*stated} - {"machines"}
  is_same = all(data[name] == stated[name] for name in names)
  # A row of a table that is another may not be one that can stand above.
  try:
    tasks = [
      checker.make_task(x, num_tokens, has_source) for x in (data, stated)
    ]
  except ValueError:
    return False
  own, other = (task.transducers for task in tasks)
  is_same &= [*own] == [*other]
  for digit, transducer in own.items() if is_same else ():
    known, pairs = {(0, 0)}, [(0, 0)]
    for p, q in pairs:  # grows while it is read
      is_same &= transducer.accepting[p] == other[digit].accepting[q]
      is_same &= (transducer.outputs[p] == other[digit].outputs[q]).all()
      rows = transducer.next_states[p], other[digit].next_states[q]
      new = {*zip(*(row.tolist() for row in rows), strict=True)} - known
      pairs += new
      known |= new
  return is_same
