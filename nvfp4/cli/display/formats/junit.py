"""JUnit's XML, as continuous integration reads it."""

import re
from xml.etree import ElementTree as Xml

from nvfp4.cli.display.formats.cases import Case, cases_of, place_of
from nvfp4.cli.judging.mistakes import Mistake
from nvfp4.cli.verdict import Verdict

_not_xml = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(verdict: Verdict) -> str:
    """A suite of tests and one of benchmarks.

    A full-range test that fails, where no contest test does, is skipped and not failed: the
    leaderboard knows no such inputs, and the exit code does not go by them.
    """
    cases = list(cases_of(verdict))
    root = Xml.Element("testsuites", name="nvfp4")
    for kind in ("test", "benchmark"):
        of_kind = [each for each in cases if each.kind == kind]
        if of_kind:
            suite = Xml.SubElement(root, "testsuite", name=f"{kind}s")
            for each in of_kind:
                _add(suite, each, verdict)
            _count(suite)
    if verdict.mistake:
        _add_mistake(Xml.SubElement(root, "testsuite", name="submission"), verdict.mistake)
    _count(root)
    Xml.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + Xml.tostring(root, "unicode")


def _add(suite: Xml.Element, case: Case, verdict: Verdict) -> None:
    result = case.result
    entry = Xml.SubElement(suite, "testcase", classname=f"nvfp4.{case.kind}", name=case.name)
    message = _xml(result.message or "")
    first_line = message.partition("\n")[0]
    failure = result.failure
    if result.status == "fail" and failure:
        first_line = _xml(failure.message) or first_line
        if verdict.only_warns(result):
            skipped = f"a warning, {failure.code}: {first_line}"
            Xml.SubElement(entry, "skipped", message=_xml(skipped)).text = message
        else:
            kind = _xml(failure.code)
            Xml.SubElement(entry, "failure", type=kind, message=first_line).text = message
        place = place_of(failure, verdict)
        if place:
            Xml.SubElement(entry, "system-out").text = _xml(place)
    elif result.status != "pass":
        Xml.SubElement(entry, "skipped", message=first_line)
    benchmark = case.benchmark
    if benchmark and benchmark.mean_us is not None:
        entry.set("time", f"{benchmark.mean_us / 1e6:.9f}")


def _add_mistake(suite: Xml.Element, mistake: Mistake) -> None:
    """What kept the submission from being judged, as a case that failed."""
    entry = Xml.SubElement(suite, "testcase", classname="nvfp4.submission", name="can be judged")
    first_line = _xml(mistake.message.partition("\n")[0])
    failure = Xml.SubElement(entry, "failure", type=_xml(mistake.code), message=first_line)
    failure.text = _xml(mistake.text)
    _count(suite)


def _count(element: Xml.Element) -> None:
    element.set("tests", str(len(list(element.iter("testcase")))))
    element.set("failures", str(len(list(element.iter("failure")))))
    element.set("skipped", str(len(list(element.iter("skipped")))))
    element.set("errors", "0")


def _xml(text: str) -> str:
    r"""A character that no XML may hold becomes an escape such as \x1b."""
    return _not_xml.sub(lambda found: ascii(found[0])[1:-1], text)
