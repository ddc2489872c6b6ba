"""#line directives: CUDA text names the lines of the Python file that it stands in."""

from nvfp4.capture.cuda.source_lines import SHOWN_AS, with_line_directives


def numbered(source: str) -> dict[str, int]:
    """Where a compiler would say that each line of a source stands."""
    lines, number = {}, 1
    for text in source.split("\n"):
        if text.startswith("#line "):
            number = int(text.split()[1])
            continue
        lines[text.strip()] = number
        number += 1
    return lines


def test_a_string_that_stands_in_the_file_begins_at_its_line() -> None:
    source = "\n__global__ void k() {\n  int x;\n}\n"
    python = f'import torch\n\nsource = r"""{source}"""\n'
    assert with_line_directives(source, python, "s.py").startswith(f'#line 3 "{SHOWN_AS}s.py"\n')
    assert numbered(with_line_directives(source, python, "s.py"))["int x;"] == 5


def test_a_formatted_string_is_followed_line_by_line() -> None:
    python = 'a = f"""\n__global__ void k() {{\n  int x = {n};\n  float first = 0;\n}}\n"""\n'
    source = "\n__global__ void k() {\n  int x = 4;\n  float first = 0;\n}\n"
    assert numbered(with_line_directives(source, python, "s.py"))["float first = 0;"] == 4


def test_parts_from_several_places_each_keep_their_lines() -> None:
    head, body = "struct Head { int size; };", "__global__ void body() {}"
    python = f'head = """\n{head}\n"""\n\nbody = """\n{body}\n"""\n'
    lines = numbered(with_line_directives(f"\n{body}\n\n{head}\n", python, "s.py"))
    assert lines[body] == 6 or lines[head] == 2


def test_no_directive_cuts_a_macro_a_comment_or_a_raw_string_in_two() -> None:
    python = (
        'a = """\n#define TWICE(x) \\\n  ((x) + (x)) /* long\n'
        'comment here */\n"""\nb = """\nint after_the_comment = 1;\n"""\n'
    )
    source = (
        "#define TWICE(x) \\\n  ((x) + (x)) /* changed\ncomment here */\nint after_the_comment = 1;"
    )
    out = with_line_directives(source, python, "s.py").split("\n")
    inside = out.index("#define TWICE(x) \\")
    assert not out[inside + 1].startswith("#line")
    assert not out[inside + 2].startswith("#line")
    assert numbered("\n".join(out))["int after_the_comment = 1;"] == 7


def test_text_from_elsewhere_stays_as_it_is() -> None:
    assert with_line_directives("int q;", "import zlib\n", "s.py") == "int q;"
    assert with_line_directives("", "import zlib\n", "s.py") == ""
