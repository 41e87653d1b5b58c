"""Pages of ``pgdyno serve`` without a browser: access, the list, a run, several side by side."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from starlette.testclient import TestClient
from synthetic_study import CREATED_UNIX_S, Synthetic, write_study

from pgdyno.cli.report import read_report
from pgdyno.errors import EvidenceError, UsageError
from pgdyno.features.serve.access import Guard
from pgdyno.features.serve.command import kept_token
from pgdyno.features.serve.index import Index, identifier
from pgdyno.features.serve.pages import application
from pgdyno.report.document import FileReport
from pgdyno.report.markdown_format import to_markdown

TOKEN, PORT, HOST = "secret-token", 8123, "http://127.0.0.1:8123"
HOSTILE = "<img src=x onerror=alert(1)>.sqlite"


def analyzed(folder: Path) -> Index:
    (folder / "below").mkdir()
    write_study(folder / "faster.sqlite", Synthetic(effects=(1.0, 1.2), blocks=6))
    later = Synthetic(effects=(1.0, 0.5), blocks=6, created_unix_s=CREATED_UNIX_S + 86_400)
    write_study(folder / "below" / HOSTILE, later)
    (folder / "other.sqlite").write_text("no database")
    found = Index(folder)
    found.entries()
    assert found.wait(60)
    return found


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    """An index of two studies, which tests only read."""
    return analyzed(tmp_path_factory.mktemp("results"))


def closed(index: Index) -> TestClient:
    return TestClient(Guard(application(index), TOKEN, PORT), base_url=HOST)


@pytest.fixture
def client(index: Index) -> TestClient:
    found = closed(index)
    assert found.get(f"/?token={TOKEN}").status_code == 200
    return found


@pytest.fixture(scope="module")
def run(index: Index) -> str:
    """The address of the first study."""
    return f"/run/{identifier(index.directory, index.directory / 'faster.sqlite')}"


def test_only_a_browser_with_the_token_has_access(index: Index) -> None:
    client = closed(index)
    assert client.get("/").status_code == client.get("/?token=wrong").status_code == 403
    assert client.get("/static/serve.css").status_code == 403
    entry = client.get(f"/run/1?q=a&token={TOKEN}")
    cookie = entry.headers["set-cookie"]
    assert "HttpOnly" in cookie and "samesite=strict" in cookie.lower()
    assert 'url=/run/1?q=a"' in entry.text and TOKEN not in entry.text
    assert client.get("/").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "attacker.example:8123"},
        {"host": "127.0.0.1:9"},
        {"origin": "http://attacker.example"},
        {"origin": "null"},
    ],
)
def test_another_host_or_origin_has_none(client: TestClient, headers: dict[str, str]) -> None:
    assert client.get("/", headers=headers).status_code == 403


@pytest.mark.parametrize(("port", "status"), [(80, 200), (8123, 403)])
def test_clients_omit_the_port_80(index: Index, port: int, status: int) -> None:
    client = TestClient(Guard(application(index), TOKEN, port), base_url="http://127.0.0.1")
    assert client.get(f"/?token={TOKEN}", headers={"origin": "http://127.0.0.1"}).status_code == status


def test_pages_permit_no_inline_script_or_style(client: TestClient) -> None:
    assert client.put("/").status_code == 405
    found = client.get("/")
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    assert not re.search(r"<style|<script(?! src=)| style=|https?://(?!www.w3.org)", found.text)


def test_the_list_has_verdicts_effects_and_escaped_names(client: TestClient) -> None:
    page = client.get("/").text
    assert "2 of 2 files." in page and "<img" not in page and "&lt;img src=x onerror=alert(1)&gt;" in page
    assert ">faster</span>" in page and ">slower</span>" in page and "+20" in page
    assert len(re.findall("<svg", page)) == 2


def test_at_the_end_the_current_analysis_is_waited_for_and_no_other_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        write_study(tmp_path / f"{name}.sqlite", Synthetic(blocks=1))
    begun, cleared, may_end = (threading.Event() for _ in range(3))
    read = list[Path]()

    def slowly(path: Path) -> FileReport:
        read.append(path)
        begun.set()
        assert may_end.wait(60)
        raise EvidenceError("read")

    monkeypatch.setattr("pgdyno.features.serve.index.read_document", slowly)
    index = Index(tmp_path)
    index.entries()
    assert begun.wait(60)
    wait = index.wait
    monkeypatch.setattr(index, "wait", lambda timeout_s: cleared.set() or wait(timeout_s))
    closing = threading.Thread(target=index.close)
    closing.start()
    assert cleared.wait(60) and closing.is_alive()
    may_end.set()
    closing.join(60)
    assert len(read) == 1 and not closing.is_alive()


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("q=FASTER", ["faster.sqlite"]),
        ("q=nothing", []),
        ("verdict=slower", [HOSTILE]),
        ("verdict=running", []),
        ("sort=effect", [HOSTILE, "faster.sqlite"]),
        ("sort=effect&order=asc", ["faster.sqlite", HOSTILE]),
    ],
)
def test_the_list_is_searched_filtered_and_sorted(client: TestClient, query: str, shown: list[str]) -> None:
    names = re.findall(r'class="file">(?:below/)?(.*?)</span>', client.get(f"/?{query}").text)
    assert [name.replace("&lt;", "<").replace("&gt;", ">") for name in names] == shown


def test_a_changed_file_is_read_again_and_a_removed_one_disappears(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, path = analyzed(tmp_path), tmp_path / "faster.sqlite"
    monkeypatch.setattr("pgdyno.features.serve.index.SCAN_S", 0.0)
    path.unlink()
    assert [one.path.name for one in index.entries()] == [HOSTILE]
    write_study(path, Synthetic(effects=(1.0, 0.5), blocks=6))
    index.entries()
    assert index.wait(60)
    entry = index.entry(identifier(tmp_path, path))
    assert entry and entry.summary and [str(of) for of, _ in entry.summary.counts] == ["slower"]


def test_ticked_runs_are_side_by_side_and_said_to_be_weak_evidence(client: TestClient, index: Index) -> None:
    folder = index.directory
    ids = [identifier(folder, path) for path in (folder / "faster.sqlite", folder / "below" / HOSTILE)]
    found = client.get("/side-by-side", params={"run": ids})
    assert found.status_code == 200 and "Weak evidence" in found.text
    assert "Change between files" in found.text and "<img" not in found.text
    alone = client.get("/side-by-side", params={"run": ids[:1]})
    assert alone.status_code == 422 and "requires two files" in alone.text


def test_an_unknown_run_is_not_found(client: TestClient) -> None:
    assert client.get("/side-by-side?run=a&run=..%2Fb").status_code == 404
    assert client.get("/static/..%2Fcommand.py").status_code == 404


def test_a_missing_directory_is_refused(refusal: Callable[..., str]) -> None:
    assert "DIR must be a directory" in refusal("serve /no/such/directory")


def test_a_run_is_its_report_with_downloads(client: TestClient, index: Index, run: str) -> None:
    page, report = client.get(run), read_report(index.directory / "faster.sqlite")
    assert report.headlines[0].claim in page.text and f'data-copy="{report.command}"' in page.text
    assert "Second by second" in page.text and len(page.content) < 150_000 and " style=" not in page.text
    assert client.get(f"{run}/report.csv").text == report.csv()
    assert client.get(f"{run}/report.md").text == to_markdown(report)
    assert client.get(f"{run}/report.json").json()["title"] == report.title
    assert 'filename="faster.html"' in client.get(f"{run}/report.html").headers["content-disposition"]
    assert client.get(f"{run}/report.exe").status_code == 404


def test_the_chart_of_the_effect_is_a_file_of_its_own(client: TestClient, run: str) -> None:
    found = client.get(f"{run}/report.svg")
    drawing = ElementTree.fromstring(found.content)
    box = [float(of) for of in drawing.attrib["viewBox"].split()[2:]]
    (chart,) = drawing.findall("{*}svg")
    assert found.headers["content-type"] == "image/svg+xml" and "prefers-color-scheme" not in found.text
    assert box[0] == float(chart.attrib["width"]) and box[1] > float(chart.attrib["height"])
    assert "+20" in found.text and 'data-png="' in client.get(run).text


def test_a_large_report_is_loaded_in_two_parts(
    client: TestClient, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = client.get(run).text
    monkeypatch.setattr("pgdyno.features.serve.pages.PAINT_BYTES_MAX", 1000)
    first, rest = client.get(run).text, client.get(f"{run}/rest").text
    assert f'hx-get="{run}/rest"' in first and len(first) < len(whole)
    in_first, in_rest, in_whole = (re.findall(r"<h2 [^>]*>([^<]*)", page) for page in (first, rest, whole))
    assert [*(of for of in in_first if of != "Documentation"), *in_rest] == in_whole


def test_a_token_is_kept_in_a_file_of_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = kept_token(path)
    assert kept_token(path) == token and path.read_text() == f"{token}\n"
    assert path.stat().st_mode & 0o777 == 0o600
    for mode in (0o604, 0o602, 0o620):
        path.chmod(mode)
        with pytest.raises(UsageError, match="others know or can change it"):
            kept_token(path)
    path.chmod(0o640)
    for wrong in ("", "short", f"{token} {token}", "é" * 20, "a" * 1025):
        path.write_text(wrong)
        with pytest.raises(UsageError, match="16 letters"):
            kept_token(path)
