#!/usr/bin/env python3
"""Verifies files of closed periods of a ledger, from period 1 on, by nothing but the section "Period files" of engines/ledger/record/doc.go.

usage: periods.py [--list LIST] FILE...

It computes the roots of batches, of the log and of the log of names, replays every record, and compares the state after each period with the
statement and with the opening rows of the next file. LIST is the output of `ronbox ledger periods --json`, whose digests the files must have.
Exit 3: something does not hold. BLAKE3 is the module blake3 if there is one, else the program b3sum; zstd is the program."""
import base64
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import blake3

    def digests(texts, context=None):
        new = (lambda t: blake3.blake3(t, derive_key_context=context)) if context else blake3.blake3
        return [new(t).digest() for t in texts]

except ImportError:

    def digests(texts, context=None):
        """Digests of texts, of many in one process."""
        out = []
        options = ["--derive-key", context] if context else []
        with tempfile.TemporaryDirectory() as folder:
            for start in range(0, len(texts), 500):
                names = []
                for i, text in enumerate(texts[start : start + 500]):
                    Path(folder, str(i)).write_bytes(text)
                    names.append(str(i))
                run = subprocess.run(["b3sum", "--no-names", *options, *names], cwd=folder, check=True, capture_output=True)
                out += [bytes.fromhex(line) for line in run.stdout.decode().split()]
        return out


class Bad(Exception):
    """Something does not hold."""


def need(holds, what, *more):
    if not holds:
        raise Bad(what.format(*more))


def digest(text):
    return digests([text])[0]


def words(d):
    return "b3:" + d.hex()


ZERO = bytes(32)
OPEN, ASSET, FLAGS, ONCE, ISSUE, TRANSFER, BURN, HOLD, CAPTURE, RELEASE, EXPIRE, BATCH, SCALE, CLOSE = range(1, 15)
INNER = 1


def castagnoli():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


CRC = castagnoli()


def crc32c(text):
    crc = 0xFFFFFFFF
    for byte in text:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def little(text):
    return int.from_bytes(text, "little")


class Record:
    """A decoded record."""

    def __init__(self, raw):
        need(len(raw) >= 84 and crc32c(raw[:-4]) == little(raw[-4:]), "the checksum of a record does not match")
        self.raw, at = raw, 80
        version, self.op, self.flags, parts, self.rand, self.seq, self.batch, self.at, self.asset = struct.unpack_from("<BBHHHQQQI", raw)
        images, key, memo, change = raw[36:40]
        self.set, self.clear = change & 15, change >> 4
        self.amount, (self.src, self.dst, self.nonce) = little(raw[40:56]), struct.unpack_from("<QQQ", raw, 56)
        need(version in (1, 2) and parts < 128, "record {} has an unknown form", self.seq)

        def take(n):
            nonlocal at
            at += n
            return raw[at - n : at]

        parted = lambda bit: parts >> bit & 1
        if parted(0):
            take(16)
        self.dedupe = (take(1)[0], take(16), take(32)) if parted(1) else None
        self.guard = (take(16), take(16)) if parted(2) else None
        self.hold = little(take(8)) if parted(3) else 0
        self.expires = little(take(8)) if parted(4) else 0
        if parted(5):
            take(4)
            take(little(take(2)))
        self.name = take(little(take(2))) if parted(6) else b""
        take(key + memo)
        self.images = []
        for _ in range(images):
            account, sums, before = little(take(8)), take(84), little(take(8))
            self.images.append((account, [little(sums[i : i + 16]) for i in range(0, 80, 16)], little(sums[80:]), before))
        need(at == len(raw) - 4, "record {} has another length", self.seq)

    def id(self):
        return (self.at // 1_000_000).to_bytes(6) + self.seq.to_bytes(8) + self.rand.to_bytes(2)

    def moves(self):
        return ISSUE <= self.op <= EXPIRE


class Header:
    """A decoded header of a batch."""

    def __init__(self, raw):
        need(len(raw) == 104 and crc32c(raw[:100]) == little(raw[100:]), "the checksum of a header does not match")
        self.raw, self.body = raw, raw[:100]
        version, self.no, self.first, self.count, self.at, self.tree, self.prev = struct.unpack("<IQQQQ32s32s", self.body)
        need(version == 1, "a header of an unknown version")


def levels(hashes):
    """All levels of a tree over hashed leaves, the lowest first."""
    out = [hashes]
    while len(hashes) > 1:
        pairs = [b"\1" + hashes[i] + hashes[i + 1] for i in range(0, len(hashes) - 1, 2)]
        hashes = digests(pairs) + ([hashes[-1]] if len(hashes) % 2 else [])
        out.append(hashes)
    return out


def path(tree, index, most):
    """The siblings on the way up from a leaf, over most levels."""
    out = []
    for level in tree[: min(most, len(tree) - 1)]:
        if index ^ 1 < len(level):
            out.append(level[index ^ 1])
        index >>= 1
    return out


def sides(count):
    """Begin and height of the full sides of a tree, the largest first."""
    begin = 0
    while begin < count:
        height = (count - begin).bit_length() - 1
        yield begin, height
        begin += 1 << height


class Ledger:
    """The state after the periods so far."""

    def __init__(self):
        self.statement, self.text = None, ""
        self.roots, self.names = [], []  # hashed leaves of the log, and of the log of names
        self.accounts, self.balances, self.holds, self.onces, self.assets = {}, {}, {}, {}, {}
        self.name = {}  # of an account or an asset

    # rows of the base, in the order of the file

    def rows(self):
        for ref, a in sorted(self.accounts.items()):
            yield b"a", struct.pack(">Q", ref), struct.pack("<BQQQQBQ", 1, a["nonce"], a["used"], a["opened"], a["changed"], a["flags"], a["at"]) + a["id"]
        for (ref, asset), (sums, day, last, postings) in sorted(self.balances.items()):
            row = b"\1" + b"".join(n.to_bytes(16, "little") for n in sums) + struct.pack("<IQIQ", day, last, 1, postings)
            yield b"b", struct.pack(">QI", ref, asset), row
        if self.holds:
            log, count = levels(self.roots), len(self.roots)
        for seq, (r, index, header, way) in sorted(self.holds.items()):
            height = next(h for begin, h in sides(count) if begin <= header.no - 1 < begin + (1 << h))
            above = path(log, header.no - 1, height)
            row = struct.pack("<BQ", 1, index) + header.raw
            for part in (way, above):
                row += bytes([len(part)]) + b"".join(part)
            yield b"h", struct.pack(">Q", seq), row + r.raw
        for key, (seq, owner) in sorted(self.onces.items()):
            yield b"o", key, struct.pack("<BQ", 1, seq) + owner
        for ref, (seq, at, scaled, decimals) in sorted(self.assets.items()):
            yield b"s", struct.pack(">I", ref), struct.pack("<BQQQB", 1, seq, at, scaled, decimals)

    # one record

    def take(self, r):
        if r.op == OPEN:
            need(r.src == len(self.accounts) + 1, "record {} opens account {}", r.seq, r.src)
            self.accounts[r.src] = dict(nonce=0, used=0, opened=r.seq, changed=0, flags=0, at=r.at, id=bytes(16))
            self.name["account", r.src] = r.name
        if r.op in (OPEN, FLAGS) or r.nonce:
            a = self.accounts[r.src]
            a["changed"] = r.seq
            if r.nonce:
                need(r.nonce > a["nonce"], "record {} uses a nonce again", r.seq)
                a.update(nonce=r.nonce, used=r.seq, id=r.id())
            if r.op == FLAGS:
                a["flags"] = a["flags"] & ~r.clear | r.set
        if r.op == ASSET:
            need(r.asset == len(self.assets) + 1, "record {} declares asset {}", r.seq, r.asset)
            self.assets[r.asset] = (r.seq, r.at, 0, 0)
            self.name["asset", r.asset] = r.name
        if r.op == SCALE:
            self.assets[r.asset] = (*self.assets[r.asset][:2], r.seq, r.amount)
        if r.op == ONCE and not r.flags & INNER:
            self.onces[b"o" + r.dedupe[1]] = (r.seq, r.dedupe[2])
            if r.guard:
                self.onces.setdefault(b"g" + r.guard[0], (r.seq, r.guard[1] + bytes(16)))
        if r.moves():
            self.post(r)

    def post(self, r):
        """The balances after a record: what one side gives, the other gets."""
        held = 0
        if r.op in (CAPTURE, RELEASE, EXPIRE):
            need(r.hold in self.holds, "record {} ends hold {}, which is not open", r.seq, r.hold)
            held = self.holds.pop(r.hold)[0].amount
        if r.op == HOLD:
            self.holds[r.seq] = None  # until its batch is complete
        posted = r.amount if r.op in (ISSUE, TRANSFER, BURN, CAPTURE) else 0
        reserved = r.amount if r.op == HOLD else -held
        need([i[0] for i in r.images] == [r.src, r.dst], "record {} has other images than its sides", r.seq)
        for side, (account, sums, day, before) in enumerate(r.images):
            key = account, r.asset
            was, _, last, postings = self.balances.get(key, ([0] * 5, 0, 0, 0))
            need(before == last, "record {} follows record {} of account {}, not {}", r.seq, last, account, before)
            want = list(was[:4])
            want[1 - side] += posted
            want[2 + side] += reserved
            need(sums[:4] == want, "record {} leaves account {} with {}, not {}", r.seq, account, sums[:4], want)
            self.balances[key] = (sums, day, r.seq, postings + 1)

    # one file

    def period(self, file, listed):
        raw = Path(file).read_bytes()
        run = subprocess.run(["zstd", "-dcq"], input=raw, capture_output=True)
        need(run.returncode == 0, "it is no zstd frame")
        content = run.stdout
        if listed:
            need(words(digest(raw)) == listed["file_b3"], "the file has another digest")
            need(words(digest(content)) == listed["content_b3"], "its lines have another digest")
        lines = [json.loads(line) for line in content.splitlines()]
        opening, s = lines[0], json.loads(lines[-1]["close"])
        number = (self.statement["period"] if self.statement else 0) + 1
        first = (self.statement["to_seq"] if self.statement else 0) + 1
        last = self.statement["last_root"] if self.statement else words(ZERO)
        need(opening == dict(format="ronbox-ledger-period-v1", period=number, from_seq=first, prev_root=last, opening=self.text), "its opening is another")
        base = [i for i in range(1, len(lines)) if "base" in lines[i]]
        need(base == list(range(1, len(base) + 1)), "rows of the base are not before the records")
        self.opens(lines[1 : len(base) + 1])
        before = len(self.accounts), len(self.assets)
        headers, references = self.records(lines[len(base) + 1 : -1], first)
        self.name_leaves(*before)
        self.closes(s, lines[-1]["close"], headers, references)
        if listed:
            need(listed["statement"] == self.text, "the node lists another statement")
        return s, len(base)

    def opens(self, lines):
        """The rows of the base are those that the periods before made."""
        kinds = {b"a": "account", b"b": "balance", b"h": "hold", b"s": "asset"}
        want = []
        for kind, key, row in self.rows():
            line = dict(base=kinds.get(kind) or ("guard" if key[:1] == b"g" else "once"), row=base64.b64encode(row).decode())
            if kind == b"o":
                line["key"] = key[1:].hex()
            else:
                line[{b"h": "seq", b"s": "asset"}.get(kind, "ref")] = int.from_bytes(key[:8])
            if kind == b"b":
                line["asset"] = int.from_bytes(key[8:])
            if kind in b"as":
                line["name"] = self.name[line["base"], int.from_bytes(key)].decode()
            want.append(line)
        need(len(want) == len(lines), "the base has {} rows, not {}", len(lines), len(want))
        for line, wanted in zip(lines, want):
            need(line == wanted, "a row of the base is {}, not {}", line, wanted)

    def records(self, lines, seq):
        """The records, each batch with its header after them."""
        headers, batches, batch, references = [], [], [], 0
        for line in lines:
            if "header" in line:
                h = Header(base64.b64decode(line["header"], validate=True))
                need((h.no, h.first, h.count) == (len(self.roots) + len(headers) + 1, seq - len(batch), len(batch)), "batch {} has other records", h.no)
                need(all(r.batch == h.no and r.at == h.at for r in batch), "batch {} has a record of another", h.no)
                headers.append((h, line["root"]))
                batches.append(batch)
                batch = []
                continue
            r = Record(base64.b64decode(line["record"], validate=True))
            need((r.seq, r.seq) == (seq, line["seq"]), "record {} is not the next one", r.seq)
            for member, name in (("from", ("account", r.src)), ("to", ("account", r.dst)), ("asset", ("asset", r.asset))):
                wanted = r.name if (r.op, member) in ((OPEN, "from"), (ASSET, "asset")) else self.name.get(name, b"")
                need(line.get(member, "") == wanted.decode(), "record {} names another {}", r.seq, member)
            self.take(r)
            if r.op == CLOSE:
                self.closing(r)
            references += r.moves() and r.guard is not None
            batch.append(r)
            seq += 1
        need(not batch, "the last batch has no header")
        self.chain(headers, batches)
        return headers, references

    def closing(self, r):
        """Records of closings of earlier periods have the digests of their statements."""
        need(r.dedupe is not None and int.from_bytes(r.dedupe[1]) == r.amount, "record {} closes no period", r.seq)
        need(r.amount in DIGESTS and DIGESTS[r.amount] == r.dedupe[2], "record {} closes period {} with another statement", r.seq, r.amount)

    def chain(self, headers, batches):
        """Roots of batches: over their records, and over the batch before."""
        prev = bytes.fromhex(self.statement["last_root"][3:]) if self.statement else ZERO
        roots = digests([h.body for h, _ in headers], "ronbox ledger batch v1")
        leaves = iter(digests([b"\0" + r.raw for batch in batches for r in batch]))
        for (h, shown), root, batch in zip(headers, roots, batches):
            need(h.prev == prev, "batch {} does not follow the one before", h.no)
            tree = levels([next(leaves) for _ in batch])
            need(tree[-1][0] == h.tree, "batch {} is not over its records", h.no)
            need(shown == words(root), "batch {} is shown with another root", h.no)
            for i, r in enumerate(batch):
                if self.holds.get(r.seq, 0) is None:
                    self.holds[r.seq] = (r, i, h, path(tree, i, 64))
            prev = root
        self.roots += digests([b"\0" + root for root in roots])
        self.last = prev

    def name_leaves(self, accounts, assets):
        leaves = [b"a" + ref.to_bytes(8) + self.name["account", ref] for ref in range(accounts + 1, len(self.accounts) + 1)]
        leaves += [b"s" + ref.to_bytes(8) + self.name["asset", ref] for ref in range(assets + 1, len(self.assets) + 1)]
        self.names += digests([b"\0" + d for d in digests(leaves)])

    def closes(self, s, text, headers, references):
        """The statement is that of the state after the period."""
        for asset in self.assets:
            of = [sums for (_, a), (sums, *_) in self.balances.items() if a == asset]
            for credit, debit, what in ((0, 1, "posted"), (3, 2, "held")):
                need(sum(b[credit] for b in of) == sum(b[debit] for b in of), "asset {}: credits and debits {} differ", asset, what)
        log, state = levels(self.roots), b""
        for kind, key, row in self.rows():
            state += kind + struct.pack("<II", len(key), len(row)) + key + row
        first, last = headers[0][0], headers[-1][0]
        want = dict(
            format="ronbox-ledger-statement-v1",
            period=(self.statement["period"] if self.statement else 0) + 1,
            prev=words(digest(self.text.encode()) if self.text else ZERO),
            from_seq=first.first, to_seq=last.first + last.count - 1, from_batch=first.no, to_batch=last.no, from_at=first.at, to_at=last.at,
            records=last.first + last.count - first.first,
            log_root=words(log[-1][0]), last_root=words(self.last),
            peaks=[words(log[height][begin >> height]) for begin, height in sides(len(self.roots))],
            accounts=len(self.accounts), assets=len(self.assets), holds_open=len(self.holds),
            names_root=words(levels(self.names)[-1][0]), state_root=words(digest(state)), references=references,
        )
        for member, value in want.items():
            need(s.get(member) == value, "{} of the statement is {}, not {}", member, s.get(member), value)
        need(text == json.dumps(want, separators=(",", ":")), "the statement has another form")
        self.statement, self.text = s, text
        DIGESTS[s["period"]] = digest(text.encode())


DIGESTS = {}  # of statements, by period


def main(args):
    listed = {}
    if args[:1] == ["--list"]:
        listed = {p["period"]: p for p in json.loads(Path(args[1]).read_text())["periods"]}
        args = args[2:]
    if not args:
        sys.exit(__doc__)
    ledger = Ledger()
    for number, file in enumerate(args, 1):
        try:
            need(not listed or number in listed, "the node does not list it")
            s, rows = ledger.period(file, listed.get(number))
        except (Bad, ValueError, KeyError, IndexError, TypeError, struct.error) as e:
            print(f"BAD  period {number}: {e!r}" if not isinstance(e, Bad) else f"BAD  period {number}: {e}")
            sys.exit(3)
        print(f"period {number}: records {s['from_seq']} to {s['to_seq']}, {rows} rows before, {s['accounts']} accounts, {s['holds_open']} open holds: it holds")


main(sys.argv[1:])
