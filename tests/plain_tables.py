"""Whether the program's table of a task is the one that the checker states.

That the program's answers are those of plain arithmetic is tested with
plain_tasks.py.
"""

from lengthgen_jax.proofs import checker


def same_tables(table, config, num_tokens, has_source) -> bool:
  """Whether a table has the layout of the task that a config names, one of
  checker.STATED, and its machines the same outputs and accepting states for all
  sequences of symbols: states may have other numbers.

  Of the model's form the table has to fit `num_tokens`, the size of its
  vocabulary, and whether there is an encoder (`has_source`).
  """
  stated = checker.stated_table(config)
  names = {*stated} - {"machines"}
  is_same = all(table.get(name) == stated[name] for name in names)
  # A wrong table whose rows could not follow one another is refused.
  try:
    tasks = [checker.Task(x, num_tokens, has_source) for x in (table, stated)]
  except ValueError:
    return False
  own, other = (task.transducers for task in tasks)
  is_same &= [*own] == [*other]
  for digit, transducer in own.items() if is_same else ():
    known, pairs = {(0, 0)}, [(0, 0)]  # machines begin in state 0
    for p, q in pairs:  # grows while it is read
      is_same &= transducer.accepting[p] == other[digit].accepting[q]
      is_same &= (transducer.outputs[p] == other[digit].outputs[q]).all()
      rows = transducer.next_states[p], other[digit].next_states[q]
      new = {*zip(*(row.tolist() for row in rows), strict=True)} - known
      pairs += new
      known |= new
  return is_same
