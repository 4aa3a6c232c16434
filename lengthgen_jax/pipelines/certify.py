"""This is --mode=certify: it proves a trained model right at every length, or
finds the shortest inputs on which it is wrong.

Finitely many contexts decide that, all that its rows can see; proofs/checker.py
tries them, and its word is the proof. Before that, lines that the model does
not need are closed (prune.py). W/certificate.json has a certificate for every
seed.
"""

import json
import pathlib
import sys
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from tqdm import tqdm

import lengthgen_jax
from lengthgen_jax import hosts, stopwatch
from lengthgen_jax.errors import check
from lengthgen_jax.evaluation.trained import Model
from lengthgen_jax.pipelines import evaluate, export, prune, workdir
from lengthgen_jax.proofs import checker, table
from lengthgen_jax.proofs.search import Search
from lengthgen_jax.results import records

MAX_TEXTS = 32  # counterexamples of one certificate that pruning heeds
OPINION_CONTEXTS = 30_000  # that the program is tried on, at most


def run(config: ConfigDict, folder: pathlib.Path) -> int:
  """Certifies a workdir's final model of every seed; returns the exit code."""
  certify(workdir.load_trained(config, folder), folder)
  return 0


@stopwatch.phase("certificate")
def certify(stage: workdir.Stage, folder: pathlib.Path) -> dict[str, dict]:
  """Certifies the models of a stage, which have all their lines, and writes
  certificate.json and rows of results.jsonl; returns {str(seed): certificate}.
  """
  path, config, rows = folder / workdir.CERTIFICATE, stage.config, []
  certificates = workdir.read_certificates(folder)
  for model in stage.models:
    seed = str(model.seed)
    result = certificates.get(seed, {})
    if not is_valid(result, config, model):
      result = new_certificate(config, model)
    pruned = prune.without_closed(config.prune, model, result)
    # The table of a task that the checker does not state has to be tried.
    is_stated = config.task in checker.STATED.split()
    asked = config.certify.second_opinion or not is_stated
    if asked and result["outcome"] == 1 and "second_opinion" not in result:
      result["second_opinion"] = second_opinion(config, pruned, result)
    certificates[seed] = result
    records.write_text(path, json.dumps(certificates, indent=1) + "\n")
    print(f"seed {seed}: {result['verdict']}", flush=True)
    if opinion := result.get("second_opinion"):
      print(
        f"seed {seed}: the program itself is right on inputs with"
        f" {opinion['contexts']:,} of these contexts, smallest margin"
        f" {opinion['margin']:.4g}"
      )
    rows.append(evaluate.certified_row(stage, pruned, result))
  records.merge(folder / "results.jsonl", rows)
  print(f"certificate: {path}")
  return certificates


def is_valid(previous: dict, config: ConfigDict, model: Model) -> bool:
  """Returns whether an earlier certificate, {} if there is none, stands for a
  new one of a model with all its lines."""
  pruned = prune.without_closed(config.prune, model, previous)
  share = config.prune.margin_share if config.prune.enabled else None
  return (
    previous.get("checksum") == pruned.checksum
    and previous["version"] == lengthgen_jax.__version__
    and previous["outcome"] is not None
    and previous.get(prune.RECORD, {}).get("margin_share") == share
    and (previous["complete"] or not config.certify.exhaustive)
  )


def new_certificate(config: ConfigDict, model: Model) -> dict[str, Any]:
  """Returns the certificate of a model with all its lines: without those that
  it does not need, unless its proof shows that it needs them."""
  try:
    checker.Model(*exported(config, model))
  except (ValueError, LookupError, TypeError) as reason:
    return certificate_of(model, f"not proved: {reason}")
  section, texts, keep_all = config.prune, [], False
  if not section.enabled:
    return certify_model(config, model)
  while True:
    closed, margins = prune.prune(section, model, texts, keep_all)
    result = certify_model(config, prune.without(model, closed))
    if not closed or result["outcome"] != 0:
      break
    # Inputs that need a closed line are held-out examples from now on.
    wrong = [x for x in result["counterexamples"][:MAX_TEXTS] if x not in texts]
    hosts.print_note(
      f"seed {model.seed}: without {len(closed)} lines it is wrong on"
      f" {wrong[0] if wrong else 'some input'}: lines that this needs are open"
      " again"
    )
    # If no new input shows which line it needs, all stay open.
    texts, keep_all = texts + wrong, not wrong
  num_lines = len(model.entries)
  if closed:
    hosts.print_note(
      f"seed {model.seed}: closed {len(closed)} of {num_lines} lines that"
      " nothing needs"
    )
  elif not margins[0] > 0:
    hosts.print_note(
      f"seed {model.seed}: wrong with all lines, so that none is closed"
    )
  record = {
    "margin_share": section.margin_share,
    "lines": num_lines,
    # The site, layer, head and number of each line, and its equation.
    "closed": [[*entry, model.equation(entry)] for entry in closed],
    # Before and after: the smallest margin on held-out examples.
    "margins": margins,
  }
  return result | {prune.RECORD: record}


def exported(config: ConfigDict, model: Model) -> tuple[dict, dict, dict]:
  """Returns (arrays, config, table), the arguments of `checker.prove`."""
  reason = table.obstacle(model.experiment.task)
  check(not reason, reason)
  advice = "choose bias.kind=window, or --mode=abc"
  check(model.scaffold, f"attention does not follow lines: {advice}")
  card, arrays = export.exported_model(config, model)
  return arrays, card["config"], card["table"]


def certificate_of(model: Model, verdict: str) -> dict[str, Any]:
  """Returns the certificate of a model of which nothing was tried, with all
  fields that certificates have."""
  return {
    "outcome": None,  # 1: right, 0: wrong
    "verdict": verdict,
    "contexts": 0,
    "complete": True,  # whether all contexts were tried
    "margin": None,
    "rounding": None,
    "counterexamples": [],
    "training_inputs": {"failing": [], "thin": []},
    "checksum": model.checksum,
    "step": model.step,
    "version": lengthgen_jax.__version__,
  }


def certify_model(config: ConfigDict, model: Model) -> dict[str, Any]:
  """Returns the certificate of one seed's model, which is not refused."""
  exported_model, section = exported(config, model), config.certify
  with tqdm(
    unit="context",
    unit_scale=True,
    mininterval=1 if sys.stderr.isatty() else 10,
    disable=not hosts.is_primary(),
    desc=f"seed {model.seed}",
  ) as bar:

    def progress(margins: np.ndarray, total: int) -> None:
      bar.total = total
      bar.update(len(margins))

    proof = checker.prove(*exported_model, int(section.max_contexts), progress)
  verdict, text = proof.pop("verdict"), str(proof.pop("text"))
  details = text.partition(": ")[2]
  result = certificate_of(model, f"not proved: {details}") | proof
  if verdict == "proved":
    text = f"right for every length: {details}"
    return result | {"outcome": 1, "verdict": text}
  if verdict == "refused":
    return result | {"complete": False}
  search = Search(model, *exported_model)
  findings = search.find_wrong(np.random.default_rng(0), section.exhaustive)
  result |= {
    "contexts": findings.contexts,
    "complete": bool(section.exhaustive),
    "margin": findings.margin,
    "counterexamples": findings.counterexamples,
    "training_inputs": {"failing": findings.failing, "thin": findings.thin},
  }
  if not findings.counterexamples:
    text = f"not proved: {text}; no input is known to fail"
    return result | {"verdict": text}
  first = "" if section.exhaustive else "the first "
  shortest = ", ".join(findings.counterexamples[:3])
  text = (
    f"wrong in {findings.wrong:,} of {first}{findings.contexts:,} contexts, the"
    f" shortest: {shortest}; smallest margin {findings.margin:.3g}"
  )
  return result | {"outcome": 0, "verdict": text}


def second_opinion(
  config: ConfigDict, model: Model, proof: dict[str, Any]
) -> dict[str, Any]:
  """Returns what `Search.second_opinion` does of a model that is proved."""
  search = Search(model, *exported(config, model))
  rng = np.random.default_rng(0)
  opinion = search.second_opinion(rng, OPINION_CONTEXTS)
  difference = opinion["margin"] - proof["margin"]
  if opinion["contexts"] < proof["contexts"]:  # some have larger margins
    difference = min(difference, 0)
  check(
    not (opinion["wrong"] or opinion["missing"])
    and abs(difference) <= proof["rounding"],
    f"seed {model.seed}: the proof and the program disagree: the checker finds"
    f" a smallest margin of {proof['margin']:.6g}, within"
    f" {proof['rounding']:.2g}, the program {opinion['margin']:.6g},"
    f" {opinion['wrong']:,} wrong inputs and {opinion['missing']:,} contexts"
    " that no input has",
  )
  return opinion
