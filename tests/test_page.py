"""The page in a real browser: what every control changes, and to which number."""

import json
import math
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

from specmtp.report.__main__ import build_page
from specmtp.report.page import page_html

ROOT = Path(__file__).parent.parent
LEDGER = ROOT / "results" / "reference_cpu" / "ledger.json"
pytestmark = pytest.mark.browser
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs chromium and its chromedriver (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    downloads = tmp_path_factory.mktemp("downloads")
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1100,900"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    try:
        driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    except WebDriverException as error:
        pytest.skip(f"chromium does not start here: {str(error).splitlines()[0]}")
    driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})  # whatever a download's bubble does
    driver.downloads = downloads  # type: ignore[attr-defined]
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def ledger() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(LEDGER.read_text("utf-8"))
    return content


@pytest.fixture
def page(browser: webdriver.Chrome, ledger: dict[str, Any], tmp_path: Path) -> Iterator["Page"]:
    shown = Page(browser, ledger, tmp_path)
    yield shown
    assert shown.complaints() == []


class Page:
    """The page of a ledger, opened from disk."""

    def __init__(self, browser: webdriver.Chrome, ledger: dict[str, Any], folder: Path) -> None:
        self.browser, self.ledger = browser, ledger
        file = folder / "report.html"
        file.write_text(page_html(ledger), "utf-8")
        self.url = file.as_uri()
        for log in ("browser", "performance"):
            browser.get_log(log)
        browser.get(self.url)

    def complaints(self) -> list[str]:
        """What the console says, and every request that left the disk."""
        said = [entry["message"] for entry in self.browser.get_log("browser")]
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                said += [] if url.startswith(("file:", "data:", "blob:", "about:")) else [url]
        return said

    def step(self, number: int) -> None:
        self.browser.get(f"{self.url}#step-{number}")

    def find(self, css: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, css)

    def all(self, css: str) -> list[Any]:
        return [e for e in self.browser.find_elements(By.CSS_SELECTOR, css) if e.is_displayed()]

    def text(self, css: str) -> str:
        return " ".join(str(self.find(css).text).split())

    def click(self, css: str) -> None:
        self.find(css).click()

    def choose(self, css: str, value: str) -> None:
        Select(self.find(css)).select_by_value(value)

    def slide(self, css: str, value: float) -> None:
        self.browser.execute_script(
            "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", self.find(css), value
        )

    def row(self, method: str, gamma: int) -> dict[str, Any]:
        rows = self.ledger["rows"]
        base = next(r for r in rows if r["speedup"] and r["id"] == r["speedup"]["baseline"])
        kind = (method, gamma, base["backend"], base["batch"])
        return next(r for r in rows if (r["method"], r["gamma"], r["backend"], r["batch"]) == kind)


def expected(alpha: float, gamma: int) -> float:
    return sum(alpha**i for i in range(gamma + 1))


def test_every_step_has_a_link_and_one_is_shown(page: Page) -> None:
    for number in range(1, 6):
        page.step(number)
        assert [s.get_attribute("id") for s in page.all("main section")] == [f"step-{number}"]
        assert page.text("#where") == f"{number} of 5"
    page.click("#previous")
    assert page.browser.current_url.endswith("#step-4")
    page.click("#next")
    assert page.browser.current_url.endswith("#step-5")
    assert not page.find("#next").is_enabled()


def test_the_page_is_one_file_under_a_megabyte(ledger: dict[str, Any]) -> None:
    html = page_html(ledger)
    assert len(html.encode()) < 1_000_000
    assert not re.search(r"(src|href)=[\"']?(https?:)?//", html)


@pytest.mark.parametrize("method", ["draft", "mtp"])
def test_a_recorded_round_is_shown_as_it_was_played(page: Page, method: str) -> None:
    page.step(1)
    page.choose("#round-method", method)
    for gamma in range(1, 9):
        page.slide("#round-gamma", gamma)
        (played,) = (r for r in page.ledger["closeup"]["rounds"] if (r["method"], r["gamma"]) == (method, gamma))
        accepted = played["accepted"]
        assert len(page.all("#strip .accepted")) == accepted
        assert len(page.all("#strip .rejected")) == (accepted < gamma)
        assert len(page.all("#strip .dropped")) == max(gamma - accepted - 1, 0)
        assert len(page.all("#mask tbody tr")) == gamma + 1
        assert len(page.all("#mask tr.dead")) == gamma - accepted
        figures = [e.text for e in page.all("#counters b")]
        assert figures == ["1", str(gamma + 1), str(accepted + 1), str(gamma - accepted)]
        page.click("#round-mode-plain")
        assert len(page.all("#forwards li")) == gamma + 1
        assert page.all("#counters b")[0].text == str(gamma + 1)
        page.click("#round-mode-speculative")
        assert len(page.all("#forwards li")) == 1
    assert f"{page.ledger['checks']['causal_max_abs_diff']:.1e}".replace("e-0", "e-") in page.text("#causal")


def test_a_row_of_the_mask_sees_itself_and_what_is_before_it(page: Page) -> None:
    page.step(1)
    page.slide("#round-gamma", 4)
    before = len(page.all("#mask thead th[scope=col]")) - 5
    for i in range(5):
        page.all("#mask button")[i].click()
        (chosen,) = page.all("#mask tr.chosen")
        assert len(chosen.find_elements(By.CSS_SELECTOR, "td.seen")) == before + i + 1
        assert page.text("#sees").startswith(f"Row {i} sees")


def positions(page: Page) -> list[dict[str, Any]]:
    """As the page lists them: where most symbols have a chance first."""
    return sorted(page.ledger["closeup"]["positions"], key=lambda x: max(x["p"]))


def test_a_symbol_is_worked_out(page: Page) -> None:
    page.step(2)
    for i, position in enumerate(positions(page)):
        page.choose("#position", str(i))
        for n in range(3):
            page.click(f"#bars button:nth-child({n + 1})")
            p, q = position["p"][n], position["q"][n]
            assert page.text("#accept-probability") == f"{min(1, p / q):.4f}"
            assert float(page.text("#together")) == pytest.approx(p, rel=0.06)
        measured = page.text("#measured")
        for figure in (f"{position['draws']:,}", f"{position['accepted'] / position['draws']:.4f}"):
            assert figure in measured
        assert f"{position['beta']:.4f}" in measured


def test_bars_are_linear_or_roots(page: Page) -> None:
    page.step(2)
    position = positions(page)[0]
    top = max(position["p"] + position["q"] + position["frequency"])

    def width() -> float:
        style = page.find("#bars button:nth-child(2) i").get_attribute("style")
        return float(re.search(r"width: ?([\d.e-]+)%", style)[1])  # type: ignore[index]

    assert width() == pytest.approx(100 * position["p"][1] / top, rel=1e-3)
    page.click("#scale-root")
    assert width() == pytest.approx(100 * math.sqrt(position["p"][1] / top), rel=1e-3)


def test_the_simulator_follows_p(page: Page) -> None:
    page.step(2)
    position = positions(page)[0]
    page.click("#draw-1")
    assert re.match(
        r"drawn “.+”, u = 0\.\d+ (<|≥) p/q = [\d.]+: (accepted|rejected, resampled “.+”)$", page.text("#log")
    )
    for _ in range(10):
        page.click("#draw-10000")
    draws, accepted, tv = (e.text for e in page.all("#tally b"))
    assert draws == "100,001"
    beta = sum(map(min, position["p"], position["q"]))
    assert abs(float(accepted) - beta) < 6 * math.sqrt(beta * (1 - beta) / 1e5) + 1e-4
    floor = sum(math.sqrt(2 * p * (1 - p) / (math.pi * 1e5)) for p in position["p"]) / 2
    assert float(tv) < 2 * floor
    assert position["tv_draft"] > 4 * floor  # what a simulator of q would show
    page.choose("#position", "1")
    assert page.all("#tally b")[0].text == "0"  # nothing of another position stays
    page.click("#draw-1")
    page.click("#clear")
    assert page.text("#log") == "Nothing drawn yet."
    assert page.all("#tally b")[0].text == "0"


def test_theory_bends_with_alpha_and_c(page: Page) -> None:
    page.step(3)
    page.slide("#alpha", 0.8)
    page.slide("#c", 0.25)
    speed = {g: expected(0.8, g) / (0.25 * g + 1) for g in range(11)}
    star = max(speed, key=lambda g: speed[g])
    assert f"best γ is {star}: {expected(0.8, star):.2f} tokens a forward, {speed[star]:.2f}×" in page.text("#best")
    page.click("#view-tokens")
    assert "ceiling 1/(1−α) = 5.00" in page.text("#gamma-chart")
    page.click("#view-speedup")
    assert "1.0×: plain decoding" in page.text("#gamma-chart") and "ceiling" not in page.text("#gamma-chart")
    page.slide("#alpha", 0.1)
    assert "do not speculate" in page.text("#best")
    page.click("#c-0")
    assert page.text("#presets ~ output, label[for=c] output") == "0.000"
    assert "longer is never worse" in page.text("#best")
    page.click("#c-005")
    assert page.text("label[for=c] output") == "0.050"
    page.click("#c-measured")
    assert page.text("label[for=c] output") == f"{page.row('draft', 1)['c']:.3f}"


@pytest.mark.parametrize("method", ["draft", "mtp"])
def test_measured_rows_are_points(page: Page, method: str) -> None:
    page.step(3)
    page.choose("#gamma-method", method)
    row = page.row(method, 2)
    costs = page.text("#gamma-costs")
    for timed in (page.row("plain", 0), row):
        assert f"{timed['waterfall']['measured']:.1f}" in costs and f"{timed['waterfall']['verify']:.1f}" in costs
    page.find(f"#gamma-chart [data-row={row['id']}]").send_keys(Keys.ENTER)
    shown = page.text("#gamma-row")
    for figure in (row["label"], f"{row['tokens_per_target_forward']:.3f}", f"{row['speedup']['median']:.2f}"):
        assert figure in shown
    assert f"{row['waterfall']['measured']:.1f}" in shown


def test_parts_of_the_mtp_module_sum_up(page: Page) -> None:
    page.step(4)
    mtp = page.ledger["models"]["mtp"]
    assert sum(part["parameters"] for part in mtp["parts"] if part["own"]) == mtp["parameters"]
    assert page.text("#own-total output") == f"{mtp['parameters']:,}"
    for part in mtp["parts"]:
        page.click(f"#part-{part['name']}")
        assert f"{part['parameters']:,} parameters" in page.text("#part")
        assert ("the module's own" in page.text("#part")) == part["own"]
    row = page.row("mtp", 1)
    assert f"{row['alpha']:.3f}" in page.text("#compare") and f"{mtp['val_loss']:.4f}" in page.text("#compare")


def test_the_sample_tells_round_by_round(page: Page) -> None:
    page.step(4)
    for sample in page.ledger["closeup"]["samples"]:
        page.choose("#sample-row", sample["row"])
        for number in (1, 2, len(sample["rounds"])):
            page.slide("#round", number)
            played = sample["rounds"][:number]
            emitted = sum(len(r["emitted"]) for r in played)
            accepted = sum(r["accepted"] for r in played)
            examined = sum(min(r["accepted"] + 1, len(r["drafts"])) for r in played)
            assert [e.text for e in page.all("#running b")] == [
                str(number),
                f"{emitted / number:.3f}",
                f"{accepted / examined:.3f}",
            ]
        marks = [e.get_attribute("class").split()[0][2:] for e in page.all("#sample span")]
        assert marks == sample["marks"]
    page.click("#colours-off")
    assert "coloured" not in page.find("#sample").get_attribute("class")


def test_rows_are_the_ledgers_in_every_order(page: Page) -> None:
    page.step(5)
    page.choose("#set", "all")
    keys: dict[str, Callable[[Any], float]] = {
        "tokens": lambda r: -r["tokens_per_target_forward"],
        "speedup": lambda r: -r["speedup"]["median"],
    }
    for order in ("run", "tokens", "speedup"):
        page.click(f"#order-{order}")
        rows = sorted(page.ledger["rows"], key=keys[order]) if order in keys else page.ledger["rows"]
        shown = page.browser.execute_script(
            "return [...document.querySelectorAll('#rows tbody tr')]"
            ".map(r => [r.dataset.row, ...[...r.children].map(c => c.textContent)])"
        )
        assert [cells[0] for cells in shown] == [row["id"] for row in rows]
        for cells, row in zip(shown, rows, strict=True):
            assert cells[5] == f"{row['tokens_per_target_forward']:.3f}"
            assert cells[4] == f"{row['ms_per_token']:.3f}"
            assert cells[2].startswith(f"{row['speedup']['median']:.2f}")
    page.click(f"tr[data-row={page.row('draft', 1)['id']}] button")
    assert f"{page.row('draft', 1)['waterfall']['verify']:.1f}" in page.text("#row")
    assert "✓ passed" in page.text("#checks")


def test_accept_rules_and_drafters_side_by_side(browser: webdriver.Chrome, tmp_path: Path) -> None:
    ledger = json.loads((ROOT / "results" / "rules_cpu" / "ledger.json").read_text("utf-8"))
    page = Page(browser, ledger, tmp_path)
    page.step(5)
    lines = [[cell.text for cell in row.find_elements(By.TAG_NAME, "td")] for row in page.all("#rules tbody tr")]
    gains = {(g["method"], g["gamma"], g["rule"]): g for g in ledger["rules"]}
    assert len(lines) * 4 == len(gains)
    block = gains["draft", 4, "block"]
    low, high = block["gain_interval"]
    line = next(line for line in lines if line[0] == "draft model γ=4")
    assert line[2] == f"{block['tokens_per_target_forward']:.3f}, +{block['gain']:.3f} [{low:.3f}, {high:.3f}]"
    drafters = {row.find_element(By.TAG_NAME, "td").text: row.text for row in page.all("#drafters tbody tr")}
    assert list(drafters) == ["draft model", "MTP", "n-gram lookup", "distilled", "unrolled"]
    assert f"{ledger['models']['named']['unrolled']['parameters']:,}" in drafters["unrolled"]
    exact = [r for r in ledger["rows"] if r["lossless"] and r["method"] != "plain"]
    best = max(exact, key=lambda r: r["speedup"]["median"])
    assert f"({best['label']})" in page.text("#headline") and best["label"] in ledger["verdict"]
    most = max((r for r in exact if r["method"] == "unrolled"), key=lambda r: r["tokens_per_target_forward"])
    assert f"{most['tokens_per_target_forward']:.2f} (γ=8 block verification)" in drafters["unrolled"]
    summary = next(s.text for s in page.all("#checks summary") if "Pairs" in s.text)
    joint = ledger["checks"]["joint"]
    exact = [c for c in joint if c["rule"] != "typical"]
    assert f"{len(exact)} of {len(exact)} comparisons ✓ passed" in summary
    assert f"beside {len(joint) - len(exact)} of a lossy rule" in summary
    assert "✗ failed" not in page.text("#step-5") and page.complaints() == []


def test_files_to_take_away(page: Page, browser: webdriver.Chrome) -> None:
    page.step(5)
    page.click("#save-json")
    page.click("#save-csv")
    folder: Path = browser.downloads  # type: ignore[attr-defined]
    deadline = 100
    while len(list(folder.glob("ledger.[jc]s[ov]*"))) < 2 and deadline:
        browser.execute_async_script("setTimeout(arguments[0], 50)")
        deadline -= 1
    assert json.loads((folder / "ledger.json").read_text("utf-8")) == page.ledger
    lines = (folder / "ledger.csv").read_text("utf-8").splitlines()
    assert len(lines) == 1 + len(page.ledger["rows"]) and lines[0].startswith("id,label,method")


def test_answers_that_hold_are_given(page: Page) -> None:
    questions = 0
    for step in range(1, 6):
        page.step(step)
        for summary in page.all(f"#step-{step} .questions summary"):
            summary.click()
            questions += 1
        assert "NaN" not in page.text(f"#step-{step}") and "undefined" not in page.text(f"#step-{step}")
    assert questions >= 12
    page.step(4)
    assert f"{page.ledger['checks']['mtp_effect']['without']:.4f}" in page.text("#step-4 .questions")


def test_the_keyboard_alone_goes_through_all_steps(page: Page) -> None:
    page.step(1)
    body = page.find("body")
    seen = set()
    for _ in range(400):
        active = page.browser.switch_to.active_element
        seen.add(active.get_attribute("id"))
        if active.get_attribute("id") == "next":
            active.send_keys(Keys.ENTER)
            if page.browser.current_url.endswith("#step-5"):
                break
        (active if active.tag_name != "body" else body).send_keys(Keys.TAB)
    assert page.browser.current_url.endswith("#step-5")
    assert {"theme", "round-gamma", "round-mode-plain", "draw-1", "alpha", "c-0", "part-projection"} <= seen


def test_a_term_says_what_it_is_on_focus(page: Page) -> None:
    page.step(3)
    terms = page.all("#step-3 .lead .term")
    page.browser.execute_script("arguments[0].focus()", terms[0])
    assert "one forward of the target" in terms[0].find_element(By.CSS_SELECTOR, ".tip").text


def test_nothing_is_wider_than_a_phone(page: Page) -> None:
    size = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    page.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        for step in range(1, 6):
            page.step(step)
            page.browser.refresh()
            for summary in page.all("summary"):
                summary.click()
            for button in page.all("#rows button")[:1]:
                button.click()
            assert page.browser.execute_script("return document.documentElement.scrollWidth") <= 390
    finally:
        page.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_light_and_dark(page: Page) -> None:
    def ground() -> str:
        return str(page.browser.execute_script("return getComputedStyle(document.body).backgroundColor"))

    page.step(1)
    first = ground()
    page.click("#theme")
    second = ground()
    page.click("#theme")
    assert ground() == first != second


HOSTILE = (
    "</script><script>window.broken=1</script>'\"\\\n\u2028\u2029<img src=x onerror='window.broken=1'>"
    "{γ}/*LEDGER*/😀漢\u202e"
)


def test_hostile_text_stays_text(browser: webdriver.Chrome, ledger: dict[str, Any], tmp_path: Path) -> None:
    hostile = json.loads(json.dumps(ledger))
    symbols = list(HOSTILE)
    hostile["provenance"]["prompt"] = hostile["provenance"]["command"] = hostile["verdict"] = HOSTILE
    samples = [hostile["sample"], *hostile["closeup"]["samples"]]
    for sample in samples:
        sample["text"] = HOSTILE
        sample["marks"] = ["accepted"] * len(symbols)
        sample["rounds"] = [{"drafts": s, "p": [1.0], "q": [1.0], "accepted": 0, "emitted": s} for s in symbols]
        sample["label"] = HOSTILE
    for played in hostile["closeup"]["rounds"]:
        played["context"], played["next"] = HOSTILE, "<"
        played["drafts"] = symbols[: played["gamma"]]
    for position in hostile["closeup"]["positions"]:
        position["context"] = HOSTILE
        position["symbols"] = (symbols + position["symbols"])[: len(position["symbols"])]
    page = Page(browser, hostile, tmp_path)
    for step in range(1, 6):
        page.step(step)
    assert browser.execute_script("return window.broken") is None
    assert browser.execute_script("return document.images.length") == 0
    assert browser.execute_script("return JSON.parse(document.getElementById('ledger').textContent).verdict") == HOSTILE
    assert page.find("#verdict").get_attribute("textContent") == HOSTILE
    assert page.complaints() == []


EVERY_CONTROL = """
const controls = () => [...document.querySelectorAll(`${arguments[0]} :is(button, summary)`)]
    .filter(c => c.checkVisibility() && !c.id.startsWith("save"));
for (let i = 0; i < controls().length && i < 300; i++) controls()[i].click();
"""


@pytest.mark.parametrize(
    ("content", "wanted"),
    [
        (None, "bench.py writes one"),
        ("", "is not JSON"),
        ("[1]", "is no ledger"),
        ('{"rows": [1]}', "it has no provenance"),
        ('{"rows": []}', "it has no provenance, models, checks, rows"),
    ],
)
def test_what_is_no_ledger_is_told(tmp_path: Path, content: str | None, wanted: str) -> None:
    file = tmp_path / "ledger.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValueError, match=wanted):
        build_page(str(file))
    assert not (tmp_path / "report.html").exists()


def test_a_page_is_built_beside_its_ledger(tmp_path: Path, ledger: dict[str, Any]) -> None:
    for name, page in (("ledger.json", "report.html"), ("greedy.json", "greedy.html")):
        (tmp_path / name).write_text(json.dumps(ledger))
        build_page(str(tmp_path / name))
        assert (tmp_path / page).read_text("utf-8") == page_html(ledger)
    with pytest.raises(ValueError, match="is a folder"):
        build_page(str(tmp_path / "ledger.json"), str(tmp_path))


def nothing_but_plain(ledger: dict[str, Any]) -> None:
    ledger["models"].update(mtp=None, draft=None, control=None)
    ledger["rows"] = [row for row in ledger["rows"] if row["method"] == "plain"]
    ledger["closeup"] = {"rounds": [], "positions": [], "samples": []}
    ledger["sample"]["rounds"] = [
        {"drafts": "", "p": [], "q": [], "accepted": 0, "emitted": s} for s in ledger["sample"]["text"]
    ]
    ledger["acceptance_by_temperature"] = ledger["planner"] = []
    ledger["profile"] = ledger["checks"]["mtp_effect"] = None


def no_draft(ledger: dict[str, Any]) -> None:
    ledger["models"].update(draft=None, control=None)
    ledger["rows"] = [row for row in ledger["rows"] if row["method"] != "draft"]
    for name in ("rounds", "positions", "samples"):
        ledger["closeup"][name] = [
            x for x in ledger["closeup"][name] if "draft" not in (x.get("method"), x.get("row", "")[:5])
        ]
    ledger["checks"]["mtp_effect"] = None


def no_mtp_and_nothing_known(ledger: dict[str, Any]) -> None:
    ledger["models"]["mtp"] = None
    ledger["rows"] = [row for row in ledger["rows"] if row["method"] != "mtp"]
    for name in ("rounds", "positions", "samples"):
        ledger["closeup"][name] = [
            x for x in ledger["closeup"][name] if "mtp" not in (x.get("method"), x.get("row", "")[:3])
        ]
    for row in ledger["rows"]:
        row.update(
            c=None, theory_speedup=None, waterfall=None, parts_us=None, alpha_interval=None, tokens_interval=None
        )
        if row["speedup"]:
            row["speedup"].update(low=None, high=None, verdict=None)
    for model in filter(None, ledger["models"].values()):
        model.update(val_loss=None, curve=[], train_seconds=None)
    ledger["provenance"].update(corpus={"name": None, "sha256": None}, validation_text_missing="it is not here")


def an_older_one(ledger: dict[str, Any]) -> None:
    del ledger["closeup"]
    for model in filter(None, ledger["models"].values()):
        for name in ("config", "parts", "depth", "weight", "shared"):
            model.pop(name, None)


def not_exact(ledger: dict[str, Any]) -> None:
    base = next(r for r in ledger["rows"] if r["speedup"] and r["id"] == r["speedup"]["baseline"])
    row = next(r for r in ledger["rows"] if (r["method"], r["backend"]) == ("draft", base["backend"]))
    row.update(speedup=None, checks_passed=False)
    ledger["checks"]["passed"] = ledger["checks"]["greedy"][0]["passed"] = False


def two_batches(ledger: dict[str, Any]) -> None:
    more = json.loads(json.dumps([row for row in ledger["rows"] if row["backend"] == "eager"]))
    for row in more:
        row.update(id=row["id"] + "_b4", batch=4, label=row["label"] + ", batch 4")
        row["speedup"]["baseline"] += "_b4"
    ledger["rows"] += more


@pytest.mark.parametrize(
    "change", [nothing_but_plain, no_draft, no_mtp_and_nothing_known, an_older_one, not_exact, two_batches]
)
def test_ledgers_in_which_things_are_missing(
    browser: webdriver.Chrome, ledger: dict[str, Any], tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    changed = json.loads(json.dumps(ledger))
    change(changed)
    page = Page(browser, changed, tmp_path)
    for step in range(1, 6):
        page.step(step)
        browser.execute_script(EVERY_CONTROL, f"#step-{step}")
        shown = page.text(f"#step-{step}")
        for wrong in ("NaN", "undefined", "null", "Infinity", "[object"):
            assert wrong not in shown, (step, wrong)
    assert page.complaints() == []
    assert ("✗ failed" in page.text("#checks")) == (change is not_exact)
    assert ("not exact" in page.text("#rows")) == (change is not_exact)
    assert bool(page.all("#batch-chart svg")) == (change is two_batches)
