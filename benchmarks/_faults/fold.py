"""All sessions of a deployment folded by the oracle, and compared with what was published and what is stored.

Plain values in, faults as lines of text out; no server, no code of the package.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from _faults.oracle import CLOSE, Account, Place, Refused, differs, event_of, same

Log = Mapping[tuple[str, int], Sequence[tuple[int, bytes]]]
"""(topic, partition) -> (offset, value) of every record, in order."""


Moment = tuple[str, int, int]
"""Of a report: its reason, after how many rounds, and how many known states."""


@dataclass
class Published:
    """What the output topics hold, one of every id."""

    actions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    regrets: dict[str, dict[Moment, dict[str, Any]]] = field(default_factory=dict)
    dead: dict[Place, tuple[str, bytes]] = field(default_factory=dict)


@dataclass
class Fold:
    """Folds partition by partition. `faults`: invariant -> what breaks it."""

    specs: Mapping[str, Mapping[str, Any]]
    log: Log
    out: Published
    programs: bool = True
    """Whether robust regret is checked by linear programs of its own."""
    rewound: bool = False
    """Whether the store went back in time: reports of before, at moments that did not come again, are let pass."""
    reasons: bool = True
    """Whether the dead letters come with their reasons."""
    accounts: dict[str, Account] = field(default_factory=dict)
    faults: dict[str, list[str]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)
    checked: Counter[str] = field(default_factory=Counter)

    def run(self) -> Fold:
        """Fold all there is."""
        self.accounts = {name: Account(spec) for name, spec in self.specs.items()}
        for partition in sorted({p for _, p in self.log}):
            self._partition(partition)
        for place, reason in ((place, told[0]) for place, told in self.out.dead.items()):
            self._fault("I1", f"a dead letter of {place} ({reason}) that should not be")
        for session, reports in self.out.regrets.items():
            for moment in () if self.rewound else reports:
                self._fault("I4", f"{session}: no moment fits the {moment} report")
        return self

    def _fault(self, invariant: str, text: str) -> None:
        self.faults.setdefault(invariant, []).append(text)

    def _partition(self, p: int) -> None:
        states: dict[str, list[tuple[dict[str, Any], Place]]] = {}
        for place, record in self._decoded("states", p):
            if record["session"] in self.specs:
                states.setdefault(record["session"], []).append((record, place))
            else:
                self._dead(place, "unknown_session")
        seen: set[tuple[str, str]] = set()
        for place, record in self._decoded("forecasts", p):
            name = record["session"]
            if name not in self.specs:
                self._dead(place, "unknown_session")
                continue
            account = self.accounts[name]
            self._forecast(account, record, place, states.get(name, []), (name, record["event"]) in seen)
            seen.add((name, record["event"]))
        for name, rest in states.items():
            account = self.accounts[name]
            while account.states_seen < len(rest):
                self._state(account, rest)
        for name, account in self.accounts.items():
            if name in states or any(key[0] == name for key in seen):
                for place, reason in account.dead:
                    self._dead(place, reason)
                account.dead = []
                self._report(account, ("close", account.round, account.states))
        accounts = self.accounts.values()
        self.kinds["parked"] = sum(len(a.parked) for a in accounts)
        self.kinds["duplicate"] = sum(a.counts["duplicate"] for a in accounts)
        self.kinds["learned"] = sum(a.states for a in accounts)

    def _decoded(self, topic: str, p: int) -> list[tuple[Place, dict[str, Any]]]:
        found = []
        for offset, value in self.log.get((topic, p), ()):
            self.kinds[topic] += 1
            try:
                found.append(((topic, p, offset), event_of(value, topic)))
            except Refused as e:
                self._dead((topic, p, offset), str(e), value)
        return found

    def _forecast(
        self, account: Account, record: dict[str, Any], place: Place, states: list[Any], repeated: bool
    ) -> None:
        event = record["event"]
        if repeated and event in account.rounds:
            account.counts["duplicate"] += 1
            return
        try:
            profile = account.profile(record["forecasts"])
        except Refused as e:
            self._dead(place, str(e))
            return
        key = (record["session"], event)
        action = self.out.actions.pop(key, None)
        if action is None:
            self._fault("I3", f"no action of {key}")
            return
        if not account.states_seen <= action["states_seen"] <= len(states):
            self._fault("I1", f"{key}: states_seen {action['states_seen']} of {len(states)}")
        while account.states_seen < min(action["states_seen"], len(states)):
            self._state(account, states)
        account.arrives(record["us"])
        self._report(account, ("solve", account.round, account.states))
        if action["round"] != account.round + 1:
            self._fault("I3", f"{key}: round {action['round']} after {account.round}")
        if tuple(action["profile"].values()) != profile:
            self._fault("I3", f"{key}: profile {action['profile']}, not {profile}")
        if action["action"] != account.draws(event, action["strategy"]):
            self._fault("I3", f"{key}: {action['action']} is not what its number draws from {action['strategy']}")
        account.forecast(event, record["us"], profile, action)
        self.kinds["applied"] += 1
        self._learned(account)

    def _state(self, account: Account, states: list[tuple[dict[str, Any], Place]]) -> None:
        record, place = states[account.states_seen]
        account.state(record["event"], record["us"], record["state"], place)
        self._learned(account)

    def _learned(self, account: Account) -> None:
        for rounds, known in account.learned:
            self._report(account, ("states", rounds, known))
        account.learned.clear()

    def _report(self, account: Account, moment: Moment) -> None:
        report = self.out.regrets.get(account.spec["session"], {}).pop(moment, None)
        if report is not None:
            self.checked["reports"] += 1
            known, oih = report["realized"], account.hindsight()
            found = [
                ("payoff", known["payoff"], float(account.payoff)),
                ("expected payoff", known["expected_payoff"], float(account.expected)),
                ("best expert", known["optimal_in_hindsight"], float(oih[0])),
                ("contextual", known["contextual"], float(oih[1])),
            ]
            if self.programs and moment[0] != "states" and account.round:
                self.checked["programs"] += 1
                best, worst = account.robust(account.spec["gamma"])
                told = report["robust"]
                if told["round"] == account.round:
                    found += [("value", told["value"], best), ("worst case", told["worst_case"], worst)]
                    regret = (best - worst) * account.round
                    if abs(told["regret"] - regret) > CLOSE * account.round * 10:
                        self._fault("I4", f"{moment}: robust regret {told['regret']!r}, not {regret!r}")
                else:
                    self._fault("I4", f"{moment}: its robust part is of round {told['round']}")
            if moment[0] == "close":
                open_ = sum(r.state is None for r in account.rounds.values())
                found += [("open", report["open"], open_), *_counts(report["counts"], account)]
            for text in same(found):
                self._fault("I4", f"{account.spec['session']} {moment}: {text}")

    def _dead(self, place: Place, reason: str, value: bytes | None = None) -> None:
        self.kinds[reason] += 1
        told = self.out.dead.pop(place, None)
        if told is None:
            self._fault("I1", f"no dead letter of {place} ({reason})")
        elif self.reasons and told[0] != reason:
            self._fault("I1", f"the dead letter of {place} says {told[0]}, not {reason}")
        elif value is not None and told[1] != value[: len(told[1])]:
            self._fault("I1", f"the dead letter of {place} has other bytes")

    def compare(self, stored: Mapping[str, Mapping[str, Mapping[str, str]]]) -> None:
        """I2: session -> table -> field -> JSON text, as Redis holds it, against the accounts."""
        for name in sorted(set(self.accounts) | set(stored)):
            if name not in stored or name not in self.accounts:
                self._fault("I2", f"session {name} is " + ("not stored" if name in self.accounts else "stored"))
                continue
            for text in _state_differs(self.accounts[name], stored[name]):
                self._fault("I2", f"{name}: {text}")
            self.checked["sessions"] += 1


def _counts(told: Mapping[str, int], account: Account) -> list[tuple[str, Any, Any]]:
    return [(w, told[w], account.counts[w]) for w in ("duplicate", "late", "conflict", "unknown", "expired")]


def _state_differs(account: Account, tables: Mapping[str, Mapping[str, str]]) -> list[str]:
    told = json.loads(tables["state"]["counters"])
    found = same(
        [
            *((n, told[n], getattr(account, n)) for n in ("round", "states_seen", "states", "forecast_us", "state_us")),
            ("payoff", told["payoff"], float(account.payoff)),
            ("expected payoff", told["expected_payoff"], float(account.expected)),
            *_counts(told["counts"], account),
            ("parked", {e: _parked(json.loads(t)) for e, t in tables.get("parked", {}).items()}, _waiting(account)),
            ("events", {e: _round(json.loads(t)) for e, t in tables.get("events", {}).items()}, _rounds(account)),
        ]
    )
    known = {" ".join("-" if z is None else repr(z) for z in e): tally for e, tally in account.tallies.items()}
    numbers = {e: json.loads(text) for e, text in tables.get("profiles", {}).items()}
    if known.keys() != numbers.keys():
        return [*found, f"profiles {sorted(known.keys() ^ numbers.keys())} are on one side only"]
    for e, tally in known.items():
        if any(differs(a, float(b)) for a, b in zip(numbers[e], tally, strict=True)):
            found.append(f"profile {e} has {numbers[e]}, not {tally}")
    return found


def _parked(value: Mapping[str, Any]) -> tuple[Any, ...]:
    return value["time_us"], value["state"], value["number"]


def _waiting(account: Account) -> dict[str, tuple[Any, ...]]:
    return {event: (us, state, number) for event, (us, state, _, number) in account.parked.items()}


def _round(value: Mapping[str, Any]) -> tuple[Any, ...]:
    return value["round"], value["time_us"], value["state"]


def _rounds(account: Account) -> dict[str, tuple[Any, ...]]:
    return {event: (r.number, r.us, r.state) for event, r in account.rounds.items()}
