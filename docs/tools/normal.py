"""What is another each time a command runs, replaced by what is always the same: places, ids, dates and times.

A text keeps its columns: a replacement is as long as what it replaces, or the blanks beside it make up for it.
"""

import json
import re
import zlib

# A day on which nothing happened.
DAY = "2026-01-05"
# Between the runs of a list, in seconds.
APART = 1
# No word boundaries: the letter that ends a colour may be before any of them.
RUN_ID = re.compile(r"(?<!\d)2\d{7}_\d{6}_[0-9a-f]{6}\b")
LONG_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{16}\b|(?<=-)(?=[0-9a-f]*\d)[0-9a-f]{10,12}\b")
STAMP = re.compile(r"(?<!\d)20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z\b)?")
DURATION = re.compile(r"( *)(?<![\d.])(\d+(?:\.\d+)?) (ms|s)\b")
PAIR = re.compile(r"(\d\S* m?s), (\d\S* m?s)( *)")
SECONDS = re.compile(r"(?<![\d.])\d+\.\d+s\b")


def digest(text, length):
    """Hexadecimal digits that depend on a text alone."""
    digits = "".join(f"{zlib.crc32(f'{text}/{part}'.encode()):08x}" for part in range(length // 8 + 1))
    return digits[:length]


class Normal:
    """Remembers which id stands for which."""

    def __init__(self, places):
        # The longest first: one may contain another.
        self.places = sorted(places.items(), key=lambda place: -len(place[0]))
        self.ids = {}

    def id_for(self, found):
        if found not in self.ids:
            at = len(self.ids) + 1
            begun = f"{DAY.replace('-', '')}_09{15 + at * APART // 60:02}{at * APART % 60:02}_"
            self.ids[found] = begun + digest(at, 6) if "_" in found else digest(at, len(found))
        return self.ids[found]

    def without_places(self, text):
        for place, name in self.places:
            text = text.replace(place, name)
        return text

    def text(self, text):
        """A text without what changes. Durations become a few milliseconds that depend on their line."""
        text = self.without_places(text)
        for pattern in (RUN_ID, LONG_ID):
            text = pattern.sub(lambda match: self.id_for(match[0]), text)
        text = STAMP.sub(lambda match: f"{DAY}T09:15:00.000Z"[: len(match[0])].replace("T", match[0][10]), text)
        text = SECONDS.sub("0.001s", text)
        times = Times()
        return "\n".join(times.line(line) for line in text.split("\n"))

    def run(self, directory, name):
        """Renames a run, and gives it the times of one whose model thinks for seconds.

        Only what pages show is changed: the journal, and how long each answer and each command took.
        """
        run = directory.rename(directory.parent / name)
        events = [json.loads(line) for line in (run / "journal.jsonl").read_text("utf-8").splitlines()]
        clock = Clock(run)
        for event in events:
            clock.event(event)
        text = "".join(json.dumps(event, ensure_ascii=False, separators=(",", ":")) + "\n" for event in events)
        text = SECONDS.sub("0.001s", self.without_places(text))
        for old, new in [(directory.name, name), *clock.renamed]:
            text = text.replace(old, new)
        (run / "journal.jsonl").write_text(text, "utf-8")
        metadata = json.loads((run / "metadata.json").read_text("utf-8"))
        metadata |= {"run_id": name, "created_at": events[0]["timestamp"], "start_time": events[0]["timestamp"]}
        metadata |= {"updated_at": clock.stamp(), "end_time": clock.stamp(), **OF_THE_MACHINE}
        (run / "metadata.json").write_text(self.without_places(json.dumps(metadata, indent=2)) + "\n", "utf-8")


OF_THE_MACHINE = {"hostname": "host", "pid": 4711}


class Times:
    """Puts made-up durations into the lines of a text: of a step a few milliseconds, of a run their sum."""

    def __init__(self):
        self.total = 0
        self.ages = 0

    def line(self, line):
        rest = DURATION.sub("", line)
        count = iter(range(99))
        is_total = re.match(r"(\x1b\[[0-9;]*m)*[\d.]+ m?s, \d+ tokens", line)

        def number():
            return int(digest(f"{rest}/{next(count)}", 4), 16) % 8 + 2

        def of_pair(match):
            median = number()
            return f"{median} ms, {median + number()} ms".ljust(len(match[0]))

        def of_time(match):
            blanks = match[1]
            # What took longer once than another time may be in seconds with a fraction; an age is in whole ones.
            if match[3] == "s" and "." not in match[2]:
                self.ages += 1
                new = f"{self.ages * APART + 2} s"
            else:
                some = self.total if is_total else number()
                self.total += some
                new = f"{some} ms"
            # In a column that is aligned on the right, the blanks before it make up for its length.
            room = len(match[0]) - len(new)
            return (" " * room if len(blanks) > 1 and room > 0 else blanks) + new

        return PAIR.sub(of_pair, line) if PAIR.search(line) else DURATION.sub(of_time, line)


class Clock:
    """The time of a run that is made up: it passes with answers and commands."""

    def __init__(self, run):
        self.run = run
        self.now = 0
        self.answers = 0
        # Directories of the record whose names are times.
        self.renamed = []

    def stamp(self, before=0):
        at = self.now - before
        return f"{DAY}T09:{15 + at // 60000:02}:{at // 1000 % 60:02}.{at % 1000:03}Z"

    def event(self, event):
        self.now += 1
        if event["type"] == "THOUGHT":
            self.answers += 1
            took = 900 + int(digest(self.answers, 4), 16) % 2400
            self.now += took
            self.answer(self.rename(event["llm_invocation_ref"], took), took)
        elif "execution_ref" in event and event["type"] != "ACTION_REQUEST":
            took = 160 + 40 * self.answers if event.get("tool_name") == "bash" else 6 + self.answers
            self.now += took
            if "duration_ms" in event:
                event["duration_ms"] = took
            (self.rename(event["execution_ref"], took) / "duration_ms.txt").write_text(f"{took}\n")
        event["timestamp"] = self.stamp()
        event |= {key: value for key, value in OF_THE_MACHINE.items() if key in event}

    def rename(self, reference, took):
        """Names a directory of the record after the moment at which it was made."""
        old = self.run / reference
        begun = re.sub(r"[-:]", "", self.stamp(took))
        new = begun + old.name[len(begun):]
        self.renamed.append((old.name, new))
        return old.rename(old.parent / new)

    def answer(self, directory, took):
        file = directory / "metadata.json"
        metadata = json.loads(file.read_text("utf-8"))
        metadata["duration_ms"] = took
        for attempt in metadata.get("attempts", []):
            attempt |= {"started_at": self.stamp(took), "duration_ms": took}
        text = json.dumps(metadata)
        for old, new in self.renamed:
            text = text.replace(old, new)
        file.write_text(text, "utf-8")
