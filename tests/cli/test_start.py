"""start: which agent, which session, and what is left when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopsup.cli import agent_choice, follow, launch, making, selection, starting
from loopsup.cli.policy_options import with_defaults
from loopsup.core.events import Ticked
from loopsup.core.model import Completed, Paused, PauseReason
from loopsup.errors import AgentUnableError, LoopsupError, StorageError, SupervisorGoneError
from loopsup.store import identity
from loopsup.store.journal import JournalAppender
from loopsup.store.lock import SessionLock
from loopsup.store.sessions import list_sessions
from loopsup.wire.control import Launch, Request, Response
from tests.cli import plugin
from tests.cli.conftest import Run
from tests.cli.support import NOW, Result, Sessions, a_loop, status_of

EVERY = ("start", "--every", "10m", "--detach")
STARTED = Response(status_of(a_loop()), "the loop is started")
ENDED = Completed(NOW.wall)


class Starts:
    """Stands for the process that would serve the session: records what it was started for."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []
        self.answered: Response | LoopsupError | KeyboardInterrupt = STARTED
        self.left = self.over = False

    def begin(self, launched: Launch, folder: Path) -> Starts:
        assert (folder / "session.toml").is_file()
        self.launches.append(launched)
        return self

    def until_owned(self, owned: Callable[[], bool]) -> None:
        assert not owned()

    def answer(self, *, leave: bool) -> Response:
        self.left = leave
        if isinstance(self.answered, Response):
            return self.answered
        raise self.answered

    def until_over(self) -> None:
        assert not self.left
        self.over = True


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    monkeypatch.syspath_prepend(str(plugin.install(tmp_path)))
    monkeypatch.setenv("LOOPSUP_ADAPTERS", ",".join(plugin.NAMES))
    monkeypatch.setattr(agent_choice, "PREFERRED", ("one", "two"))
    fake = Starts()
    monkeypatch.setattr(launch, "begin", fake.begin)
    return fake


def request(objective: str, **args: Any) -> Request:
    policy = {
        "minDelayMs": 60_000,
        "maxDelayMs": 86_400_000,
        "forMs": 86_400_000,
        "maxIterations": 50,
        "misfire": "once",
        "rhythm": 600_000,
    }
    return Request("start", {"objective": objective, "policy": policy, **args})


def configure(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "config" / "loopsup"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(text)


def made(tmp_path: Path) -> dict[str, identity.Identity]:
    folders = sorted((tmp_path / "home" / "sessions").glob("[!.]*"))
    return {folder.name: identity.load_identity(folder.resolve()) for folder in folders}


# ---- a new session --------------------------------------------------------------------------------


def test_a_new_session_is_made_and_started(run: Run, starts: Starts, tmp_path: Path) -> None:
    result = run(*EVERY, " watch it \n", "--", "--model", "m")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("started in session 'work'; ")
    assert starts.launches == [Launch("work", "new", request(" watch it \n"))]
    (session,) = made(tmp_path).values()
    assert (session.name, session.agent, session.cwd, session.args, session.allow_all) == (
        "work",
        "one",
        str(tmp_path / "work"),
        ("--model", "m"),
        False,
    )
    assert len(session.id) == 36
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "home" / "sessions" / "work" / "session.toml").stat().st_mode & 0o777 == 0o600


def test_a_loop_that_ticks_drive_is_told_when_its_supervisor_has_ended(run: Run, starts: Starts) -> None:
    result = run(*EVERY, "--driver", "tick", "watch")
    assert (result.code, starts.over) == (0, True)
    assert "`loopsup tick` fires it" in result.out
    assert run("start", "--every", "10m", "--session", "other", "--detach", "watch").code == 0
    assert (starts.left, len(starts.launches)) == (True, 2)


def test_every_option_reaches_the_supervisor(run: Run, starts: Starts, tmp_path: Path) -> None:
    line = "start --every auto --after 5m --for 2d --max-iterations 7 --min-delay 2m --max-delay 3h --misfire 2h"
    result = run(
        *line.split(), "--agent", "two", "--session", "mine", "--allow-all", "--detach", "--json", "--", "-x"
    )
    assert (result.code, result.json) == (0, STARTED.status)
    policy = {
        "rhythm": "auto",
        "minDelayMs": 120_000,
        "maxDelayMs": 10_800_000,
        "forMs": 172_800_000,
        "maxIterations": 7,
        "misfire": 7_200_000,
    }
    first = Request("start", {"objective": "-x", "policy": policy, "afterMs": 300_000})
    assert starts.launches == [Launch("mine", "new", first, allow_all=True)]
    assert made(tmp_path)["mine"].allow_all


def test_what_is_said_about_interrupted_responses_reaches_the_supervisor(run: Run, starts: Starts) -> None:
    said = ("--continuity", "off", "--continuity-max-resumes", "unlimited", "--continuity-stream-delay-ms", "0")
    assert run(*EVERY, *said, "x").code == 0
    continuity = {"enabled": False, "maxResumes": "unlimited", "streamDelayMs": 0}
    assert starts.launches == [Launch("work", "new", request("x", continuity=continuity))]


@pytest.mark.parametrize(
    ("option", "value", "wrong"),
    [
        ("--continuity", "yes", "'yes' is not on or off"),
        ("--continuity-max-resumes", "-1", "'-1' is not a whole number of 0 or more or unlimited"),
        ("--continuity-max-resumes", " 3", "' 3' is not a whole number of 0 or more or unlimited"),
        ("--continuity-max-resumes", "", "'' is not a whole number of 0 or more or unlimited"),
        ("--continuity-max-resumes", "9007199254740992", "'9007199254740992' is not a whole number of 0 or more"),
        ("--continuity-stream-delay-ms", "1.5", "'1.5' is not a whole number of 0 or more"),
        ("--continuity-stream-delay-ms", "unlimited", "'unlimited' is not a whole number of 0 or more"),
    ],
)
def test_a_limit_that_cannot_be_read_starts_nothing(
    run: Run, starts: Starts, tmp_path: Path, option: str, value: str, wrong: str
) -> None:
    """C-06, the other way round: whoever is there to mend it is asked to."""
    result = run(*EVERY, f"{option}={value}", "x")
    assert result.code == 2
    assert f"{option}: {wrong}" in result.err
    assert (starts.launches, made(tmp_path)) == ([], {})


def test_limits_nobody_can_read_in_the_configuration_are_told(run: Run, starts: Starts, tmp_path: Path) -> None:
    configure(tmp_path, "[continuity]\nstream_retries = -1\n")
    result = run(*EVERY, "x")
    assert result.code == 0
    told = "warning: configuration: 'continuity.stream_retries' must be a whole number, 0 or more; "
    assert told + "interrupted responses are not recovered" in result.err


def test_the_warnings_of_the_policy_are_told(run: Run, starts: Starts) -> None:
    """D-01: from the supervisor, which judges the same combination."""
    starts.answered = Response(STARTED.status, "started", ("--after 13h uses up half or more",))
    assert "warning: --after 13h uses up" in run(*EVERY, "--after", "13h", "x").err


@pytest.mark.parametrize(
    "failure", [AgentUnableError("it does not start"), SupervisorGoneError("not ready"), KeyboardInterrupt()]
)
def test_a_start_that_fails_leaves_nothing(
    run: Run, starts: Starts, tmp_path: Path, failure: LoopsupError | KeyboardInterrupt
) -> None:
    starts.answered = failure
    result = run(*EVERY, "x")
    assert result.code == (failure.exit if isinstance(failure, LoopsupError) else 130)
    assert made(tmp_path) == {}


@pytest.mark.parametrize(
    ("arg", "warned"),
    [
        ("--api-key", True),
        ("--api-key=1", True),
        ("OPENAI_API_KEY=1", True),
        ("sk-abc", True),
        ("--token=ghp_1", True),
        ("--model", False),
        ("--keyboard", False),
        ("tasks-list", False),
        ("--max-tokens", False),
    ],
)
def test_key_like_arguments_are_warned_of_without_being_repeated(
    run: Run, starts: Starts, arg: str, warned: bool
) -> None:
    result = run(*EVERY, "x", "--", arg)
    assert result.code == 0
    assert ("looks like a key" in result.err) == warned
    assert arg not in result.err


# ---- which agent ----------------------------------------------------------------------------------


def test_the_first_preferred_agent_that_is_there(
    run: Run, starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_MISSING", "one")
    assert run(*EVERY, "x").code == 0
    assert made(tmp_path)["work"].agent == "two"


def test_no_agent_is_exit_6_with_the_three_ways_on(
    run: Run, starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_MISSING", "one,two")
    result = run(*EVERY, "x")
    assert (result.code, made(tmp_path)) == (6, {})
    for way in ("install one of them", "--agent", "default_agent"):
        assert way in result.err
    assert "--agent demo" not in result.err  # it is not installed here


def test_the_demo_agent_is_named_where_it_is_the_only_one(
    run: Run, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOPSUP_ADAPTERS", "demo")
    assert "`--agent demo` and `-- --file PATH` work at once" in run(*EVERY, "x").err


def test_an_agent_that_is_not_installed(run: Run, starts: Starts, tmp_path: Path) -> None:
    result = run(*EVERY, "--agent", "tow", "x")
    assert (result.code, made(tmp_path)) == (6, {})
    assert "there is no agent 'tow'; did you mean 'two'? installed are: broken, " in result.err
    configure(tmp_path, 'default_agent = "codex"\n')
    result = run(*EVERY, "x")
    assert (result.code, made(tmp_path)) == (6, {})
    assert f"default_agent of {tmp_path}/config/loopsup/config.toml is 'codex'" in result.err


def test_a_hook_that_cannot_be_used_is_told_at_once(run: Run, starts: Starts, tmp_path: Path) -> None:
    configure(tmp_path, 'on_attention = "/nonexistent/hook"\n')
    result = run(*EVERY, "x")
    assert result.code == 0
    assert result.err.count("the attention hook cannot be used: ") == 1
    assert "'/nonexistent/hook', which is no file" in result.err


def test_the_configured_agent_and_its_command(
    run: Run, starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure(tmp_path, 'default_agent = "two"\n[agents.two]\ncommand = "/opt/two"\n')
    assert run(*EVERY, "x").code == 0
    session = made(tmp_path)["work"]
    assert (session.agent, session.command) == ("two", "/opt/two")
    monkeypatch.setenv("TEST_MISSING", "two")
    assert run(*EVERY, "--session", "b", "x") == Result(6, "", "loopsup: /opt/two is not on PATH; install it\n")


def test_an_env_file_counts_for_whether_the_agent_is_there(run: Run, starts: Starts, tmp_path: Path) -> None:
    env_file = tmp_path / "env"
    env_file.write_text("TEST_MISSING=one\n")
    configure(tmp_path, f'[agents.one]\nenv_file = "{env_file}"\n')
    assert run(*EVERY, "--agent", "one", "x").code == 6


@pytest.mark.parametrize(
    ("agent", "says"), [("nope", "there is no agent 'nope'"), ("broken", "does not load: RuntimeError")]
)
def test_an_agent_that_is_not_there_is_exit_6(run: Run, starts: Starts, agent: str, says: str) -> None:
    result = run(*EVERY, "--agent", agent, "x")
    assert result.code == 6
    assert says in result.err


def test_arguments_the_adapter_cannot_pass_on_are_exit_2(run: Run, starts: Starts, tmp_path: Path) -> None:
    result = run(*EVERY, "x", "--", "--bad")
    assert result == Result(2, "", "loopsup: the argument --bad cannot be passed on\n")
    assert made(tmp_path) == {}


def test_a_wrong_configuration_is_exit_2(run: Run, starts: Starts, tmp_path: Path) -> None:
    configure(tmp_path, 'defualt_agent = "one"\n')
    result = run(*EVERY, "x")
    assert (result.code, made(tmp_path)) == (2, {})
    assert "default_agent" in result.err


# ---- permissions ----------------------------------------------------------------------------------


def test_what_is_not_started_is_not_warned_of(run: Run, starts: Starts, tmp_path: Path) -> None:
    starts.answered = AgentUnableError("the command nosuchprog cannot be executed")
    result = run(*EVERY, "--agent", "careless", "x")
    assert result == Result(6, "", "loopsup: the command nosuchprog cannot be executed\n")
    assert made(tmp_path) == {}


def test_tools_that_run_unasked_are_told_once(run: Run, starts: Starts) -> None:
    result = run(*EVERY, "--agent", "careless", "x")
    assert result.err.count("careless does not ask before each tool") == 1
    assert "does not ask" not in run(*EVERY, "--agent", "careless", "--allow-all", "--session", "b", "x").err


@pytest.mark.parametrize("setting", ['mode = "deny"', 'deny = ["bash"]'])
def test_a_denial_nobody_could_enforce_is_exit_6(run: Run, starts: Starts, tmp_path: Path, setting: str) -> None:
    configure(tmp_path, f"[permissions]\n{setting}\n")
    result = run(*EVERY, "--agent", "careless", "x")
    assert (result.code, made(tmp_path)) == (6, {})
    assert run(*EVERY, "--agent", "guarded", "--session", "g", "x").code == 0
    assert run(*EVERY, "--agent", "one", "--session", "o", "x").code == 0


# ---- which session --------------------------------------------------------------------------------


def test_a_live_session_takes_its_next_loop(run: Run, starts: Starts, sessions: Sessions) -> None:
    with sessions.live("here", a_loop(ENDED), start=STARTED) as fake:
        result = run(*EVERY, "x")
    assert (result.code, fake.asked, starts.launches) == (0, [request("x")], [])
    assert "session 'here'" in result.out


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("phase", [None, Paused(PauseReason.USER)])
def test_an_unfinished_loop_is_refused_and_named(
    run: Run, starts: Starts, sessions: Sessions, alive: bool, phase: Paused | None
) -> None:
    """L-01, case 2."""
    if alive:
        with sessions.live("here", a_loop(phase), start=STARTED) as fake:
            before = sessions.journal("here")
            results = [run(*EVERY, "x"), run(*EVERY, "--session", "here", "x")]
            assert fake.asked == []
    else:
        sessions.make("here", a_loop(phase))
        before = sessions.journal("here")
        results = [run(*EVERY, "x"), run(*EVERY, "--session", "here", "x")]
    for result in results:
        assert (result.code, result.out) == (4, "")
        assert "session 'here' has a loop already" in result.err
        assert "--session NAME" in result.err
    assert (sessions.journal("here"), starts.launches) == (before, [])


@pytest.mark.parametrize(
    ("phase", "why"),
    [
        (Paused(PauseReason.SESSION_CLOSED), "paused, the session was closed, iteration 3 of 50"),
        (None, "paused, its supervisor ended without closing, iteration 3 of 50"),
        (Paused(PauseReason.BLOCKED), "paused, the agent is blocked, iteration 3 of 50"),
    ],
)
def test_a_refusal_names_the_way_on_of_a_paused_loop(
    run: Run, starts: Starts, sessions: Sessions, phase: Paused | None, why: str
) -> None:
    sessions.make("here", a_loop(phase))
    assert run(*EVERY, "x").err == (
        f"loopsup: session 'here' has a loop already ({why}); `loopsup resume --session here` goes on with it, "
        "`loopsup stop --session here` ends it, or start a second session beside it with --session NAME\n"
    )


def test_a_session_of_another_directory_says_where_it_works(
    run: Run, starts: Starts, sessions: Sessions, tmp_path: Path
) -> None:
    sessions.make("up", a_loop(ENDED), cwd=tmp_path, agent="one")
    assert f"session 'up' works in {tmp_path}, not here" in run(*EVERY, "--session", "up", "x").err


def test_a_closed_session_whose_loop_has_ended_is_never_picked(
    run: Run, starts: Starts, sessions: Sessions, tmp_path: Path
) -> None:
    """L-03."""
    sessions.make("work", a_loop(ENDED))
    result = run(*EVERY, "x")
    assert result.code == 0
    assert "a new one is made; `loopsup start --session work` goes on" in result.err
    assert starts.launches == [Launch("work-2", "new", request("x"))]


def test_a_named_one_is_reopened(run: Run, starts: Starts, sessions: Sessions) -> None:
    sessions.make("old", a_loop(ENDED), agent="one")
    assert run(*EVERY, "--session", "old", "x").code == 0
    assert starts.launches == [Launch("old", "reopen", request("x"))]


def test_a_reopen_that_fails_leaves_the_session_as_it_is(run: Run, starts: Starts, sessions: Sessions) -> None:
    sessions.make("old", a_loop(ENDED), agent="one")
    before = sessions.journal("old")
    starts.answered = SupervisorGoneError("not ready")
    assert (run(*EVERY, "--session", "old", "x").code, sessions.journal("old")) == (5, before)


def test_several_open_sessions_must_be_named(run: Run, starts: Starts, sessions: Sessions) -> None:
    sessions.make("a", a_loop())
    sessions.make("b", a_loop())
    result = run(*EVERY, "x")
    assert result.code == 2
    assert "--session NAME" in result.err


def test_sessions_of_other_directories_do_not_count(
    run: Run, starts: Starts, sessions: Sessions, tmp_path: Path
) -> None:
    sessions.make("up", a_loop(), cwd=tmp_path)
    assert run(*EVERY, "x").code == 0
    assert [launched.name for launched in starts.launches] == ["work"]


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--agent", "two"], "is a conversation with 'one', not with 'two'"),
        (["--", "--model", "m"], "keeps the arguments it was first started with"),
        (["--", "--bad"], "the argument --bad cannot be passed on"),
    ],
)
def test_an_old_session_keeps_its_agent(
    run: Run, starts: Starts, sessions: Sessions, argv: list[str], says: str
) -> None:
    sessions.make("old", a_loop(ENDED), agent="one")
    split = argv.index("--") if "--" in argv else len(argv)
    result = run(*EVERY, "--session", "old", *argv[:split], "x", *argv[split:])
    assert (result.code, starts.launches) == (2, [])
    assert says in result.err


def test_allow_all_is_for_the_start_of_an_agent(run: Run, starts: Starts, sessions: Sessions) -> None:
    with sessions.live("here", a_loop(ENDED), start=STARTED) as fake:
        result = run(*EVERY, "--allow-all", "x")
    assert (result.code, fake.asked) == (4, [])
    assert "loopsup close --session here" in result.err


def test_foreground_needs_a_session_of_its_own(run: Run, starts: Starts, sessions: Sessions) -> None:
    with sessions.live("here", a_loop(ENDED), start=STARTED) as fake:
        result = run("start", "--every", "10m", "--foreground", "x")
    assert (result.code, fake.asked) == (4, [])


# ---- --continue -----------------------------------------------------------------------------------


@pytest.fixture
def conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "agent"
    place.mkdir(mode=0o700)
    monkeypatch.setenv("TEST_CONVERSATIONS", str(place))
    (place / "c1.jsonl").write_text(str(tmp_path / "work"))
    (place / "c2.jsonl").write_text("/elsewhere")
    return place


def test_a_conversation_is_adopted_beside_its_file(
    run: Run, starts: Starts, conversations: Path, tmp_path: Path
) -> None:
    assert run(*EVERY, "--continue", "c1", "x").code == 0
    assert starts.launches == [Launch("work", "new", request("x"))]
    assert (tmp_path / "home" / "sessions" / "work").resolve() == conversations / "c1.loopsup"
    session = made(tmp_path)["work"]
    assert (session.agent_session_id, session.agent_file) == ("c1", str(conversations / "c1.jsonl"))


def test_an_adopted_conversation_is_that_session_from_then_on(
    run: Run, starts: Starts, conversations: Path, tmp_path: Path
) -> None:
    run(*EVERY, "--continue", "c1", "--session", "mine", "x")
    (tmp_path / "home" / "sessions" / "mine").unlink()  # the name is lost, the folder is not
    assert run(*EVERY, "--continue", "c1", "y").code == 0
    assert [(each.name, each.open) for each in starts.launches] == [("mine", "new"), ("mine", "reopen")]
    result = run(*EVERY, "--continue", "c1", "--session", "other", "y")
    assert result.code == 4
    assert "is session 'mine' already" in result.err


def test_another_directorys_conversation_is_refused(run: Run, starts: Starts, conversations: Path) -> None:
    result = run(*EVERY, "--continue", "c2", "x")
    assert (result.code, starts.launches) == (4, [])
    assert "belongs to /elsewhere" in result.err


def test_an_unknown_conversation_is_not_found(run: Run, starts: Starts, conversations: Path) -> None:
    assert run(*EVERY, "--continue", "c9", "x").code == 3


def test_a_failed_adoption_leaves_the_conversation_alone(run: Run, starts: Starts, conversations: Path) -> None:
    starts.answered = AgentUnableError("no")
    assert run(*EVERY, "--continue", "c1", "x").code == 6
    assert sorted(path.name for path in conversations.iterdir()) == ["c1.jsonl", "c2.jsonl"]


# ---- following ------------------------------------------------------------------------------------


def test_a_start_follows_and_exits_with_the_outcome(
    run: Run, starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    last = status_of(a_loop(ENDED))
    followed: list[Any] = []

    def follow_it(identity: identity.Identity, *, json_mode: bool, until_end: bool) -> dict[str, Any]:
        followed.append((identity.name, json_mode, until_end))
        return last

    monkeypatch.setattr(follow, "run", follow_it)
    assert run("start", "--every", "10m", "x").code == 0
    result = run("start", "--every", "10m", "--session", "b", "--json", "x")
    assert (result.code, json.loads(result.out.splitlines()[-1])) == (0, last)
    assert followed == [("work", False, True), ("b", True, True)]


def test_leaving_says_that_the_loop_goes_on_and_how_to_stop_it(
    run: Run, starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(follow, "run", leave)
    result = run("start", "--every", "10m", "x")
    assert result.code == 130
    assert "the loop goes on" in result.err
    assert "`loopsup stop --session work`" in result.err
    assert list(made(tmp_path)) == ["work"]


def test_a_session_that_closed_before_we_came_is_read_from_the_files(
    run: Run, starts: Starts, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, sessions: Sessions
) -> None:
    def gone(identity: identity.Identity, **_: object) -> None:
        with JournalAppender.open(tmp_path / "home" / "sessions" / "work") as journal:
            journal.append(NOW, Ticked(idle=False), a_loop(Paused(PauseReason.BLOCKED)))
        raise SupervisorGoneError("nobody there")

    monkeypatch.setattr(follow, "run", gone)
    assert run("start", "--every", "10m", "x").code == 11


def test_only_a_session_without_a_loop_and_an_owner_is_removed(sessions: Sessions) -> None:
    with SessionLock.acquire(sessions.make("owned")):
        making.unmake(selection.named("owned"))
    sessions.make("worked", a_loop(Paused(PauseReason.SESSION_CLOSED)))
    making.unmake(selection.named("worked"))
    sessions.make("empty")
    making.unmake(selection.named("empty"))
    assert [entry.name for entry in list_sessions(sessions.home)] == ["owned", "worked"]


def test_a_supervisor_in_the_foreground_that_breaks_keeps_its_loop(
    run: Run, starts: Starts, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(launched: Launch, answer: Callable[[Response], None]) -> int:
        assert launched == Launch("work", "new", request("x"), foreground=True)
        answer(STARTED)
        with JournalAppender.open(sessions.home.sessions / "work") as journal:
            journal.append(NOW, Ticked(idle=False), a_loop())
        raise StorageError("the disk is full")

    monkeypatch.setattr("loopsup.shell.main.supervise", breaks)
    result = run("start", "--every", "10m", "--foreground", "x")
    assert (result.code, result.out) == (1, "")
    assert result.err.endswith("loopsup: the disk is full\n")
    assert sessions.loop() == a_loop()


def test_a_supervisor_in_the_foreground_gives_the_exit_code(
    run: Run, starts: Starts, sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serves(launched: Launch, answer: Callable[[Response], None]) -> int:
        assert launched == Launch("work", "new", request("x"), foreground=True, keep=True, as_json=True)
        answer(STARTED)
        return 13

    monkeypatch.setattr("loopsup.shell.main.supervise", serves)
    result = run("start", "--every", "10m", "--foreground", "--keep", "--json", "x")
    assert (result.code, result.json["session"]["name"], result.err) == (
        13,
        "work",
        "loopsup: the loop is started, in session 'work'\n",
    )


def test_a_refused_start_in_the_foreground_is_its_error(
    run: Run, starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(launched: Launch, answer: Callable[[Response], None]) -> int:
        answer(Response(error=AgentUnableError("no")))
        return 0

    monkeypatch.setattr("loopsup.shell.main.supervise", refuses)
    assert run("start", "--every", "10m", "--foreground", "x") == Result(6, "", "loopsup: no\n")
    assert made(tmp_path) == {}


def test_stream_rules_that_will_not_act_are_told_at_once(run: Run, starts: Starts) -> None:
    rule = Path(".loopsup/rules/a.md")
    rule.parent.mkdir(parents=True)
    rule.write_text("---\ntrigger: foo\n---\nNo foo.\n")
    assert run(*EVERY, "x").err == (
        "loopsup: warning: stream rules: .loopsup/rules/a.md (not trusted, so it does not act); "
        "look at it, then run: loopsup rules trust\n"
    )
    assert run("rules", "trust").code == 0
    assert run(*EVERY, "--session", "b", "x").err == ""


@pytest.mark.parametrize(
    ("rhythm", "park", "warned"),
    [(599_000, True, True), (600_000, True, False), (599_000, False, False), ("auto", True, False)],
)
def test_park_with_a_rhythm_that_never_parks(rhythm: int | str, park: bool, warned: bool, tmp_path: Path) -> None:
    policy = with_defaults({"rhythm": rhythm})
    order = starting.Order("look", policy, None, None, None, None, False, None, tmp_path, {}, "resident", park)
    assert bool(starting.park_warnings(order)) == warned


def test_park_where_the_agent_chooses_within_a_short_time(tmp_path: Path) -> None:
    policy = with_defaults({"rhythm": "auto", "maxDelayMs": 300_000})
    order = starting.Order("look", policy, None, None, None, None, False, None, tmp_path, {}, "resident", True)
    assert starting.park_warnings(order) == [
        "--park does nothing here: it closes the agent only between wakes at least 10m apart, "
        "and these are at most 5m"
    ]
