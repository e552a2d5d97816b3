package lverify_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// A ledger verifies, flushed or not, as a whole and from any batch on.
func TestVerifySound(t *testing.T) {
	f := newFile(t).open(true)
	check := func(when string) {
		t.Helper()
		rep := f.verify(lverify.Options{})
		head, err := f.l.Head(t.Context())
		if err != nil || !rep.OK || !rep.Whole || rep.Head != head {
			t.Fatalf("%s: %+v\nthe head is %+v, %v", when, rep, head, err)
		}
	}
	check("empty")
	f.fill(1, 60)
	check("not flushed")
	f.flush()
	check("flushed")
	for seed := range uint64(30) {
		f.clock.Advance(time.Second)
		if _, err := f.l.Commit(t.Context(), ledgertest.NewDice(100+seed).Call()); err != nil {
			t.Fatal(err)
		}
	}
	check("half flushed")
	f.close()
	f.open(true)
	check("opened again")
	last := f.verify(lverify.Options{}).Batches
	for from := uint64(2); from <= last; from += 1 + last/20 {
		calls := 0
		rep := f.verify(lverify.Options{From: from, Progress: func(done, total uint64) { calls++ }})
		if !rep.OK || rep.Whole || rep.Batches != last-from+1 {
			t.Fatalf("from %d: %+v", from, rep)
		}
	}
	if rep := f.verify(lverify.Options{From: last + 2}); rep.OK {
		t.Fatal("a check from beyond the end passed")
	}
}

func TestVerifyStops(t *testing.T) {
	b := newBench(t, full(t, 1, 5))
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if rep, err := lverify.Verify(ctx, b.tx.Reader(), lverify.Options{}); !errors.Is(err, gone) || rep.OK {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A check stops at any point when told to, and does not report the unchecked parts as missing.
func TestVerifyStopsAnywhere(t *testing.T) {
	b := newBench(t, full(t, 1, 1100)) // so that each table has its part of some 4096 steps
	gone := errors.New("gone")
	for at := 1; ; at++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		rep, err := lverify.Verify(ctx, b.tx.Reader(), lverify.Options{Progress: func(uint64, uint64) {
			if calls++; calls == at {
				cancel(gone)
			}
		}})
		cancel(nil)
		if len(rep.Findings) != 0 || err != nil && !errors.Is(err, gone) {
			t.Fatalf("stopped at report %d: %+v, %v", at, rep, err)
		}
		if rep.OK {
			return
		}
	}
}

func TestChecks(t *testing.T) {
	b := newBench(t, full(t, 1, 5))
	checks := lverify.Checks()
	for _, c := range checks {
		if err := c.Run(b.tx.Reader()); err != nil || c.Name != "ledger" {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	flip(b.rows[0], 0)
	b.put(t, b.rows[0])
	for _, c := range checks {
		if err := c.Run(b.tx.Reader()); err == nil {
			t.Error("a bad ledger passed")
		}
	}
}

func flip(r row, bit int) { r.value[bit/8] ^= 1 << (bit % 8) }

// A flipped bit anywhere is noticed: in the journal, batches and head, and in each derived table.
// This test flips one bit of every byte. TestAnyFlippedBit flips others.
func TestEveryFlippedByte(t *testing.T) {
	b := newBench(t, full(t, 3, 6))
	tried := map[string]int{}
	for n, r := range b.rows {
		for i := range r.value {
			flip(r, 8*i+(n+i)%8)
			b.put(t, r)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("%s %x, byte %d of %d: not noticed", r.b.Name, r.key, i, len(r.value))
			}
			flip(r, 8*i+(n+i)%8)
			tried[r.b.Name]++
		}
		b.put(t, r)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
	t.Logf("bytes tried: %v", tried)
}

// Each header is either beside the head or in its table, exactly once and in its place. Any other
// layout is refused even if readers could follow it, because equal ledgers have equal files.
func TestHeadersInTwoPlaces(t *testing.T) {
	b := newBench(t, full(t, 3, 34))
	head, _ := tables.GetHead(b.tx.Reader())
	last := head.Batches - head.Tail.Count() // in the table
	if head.Tail.Count() < 2 || last < tables.TailBatches {
		t.Fatalf("%d batches, %d wait", head.Batches, head.Tail.Count())
	}
	bytesOf := func(no uint64) []byte {
		h, _ := tables.Batch(b.tx.Reader(), no)
		return h.Append(nil)
	}
	var table, meta row
	for _, r := range b.rows {
		switch {
		case r.b.Name == "ledger/batches":
			table = r
		case string(r.key) == "head":
			meta = r
		}
	}
	at := func(no uint64, value []byte) row { return row{table.b, binary.BigEndian.AppendUint64(nil, no), value} }
	before := len(meta.value) - int(head.Tail.Count())*record.BatchSize
	waiting := func(raw ...[]byte) row {
		return row{meta.b, meta.key, slices.Concat(append([][]byte{meta.value[:before]}, raw...)...)}
	}
	tail := meta.value[before:]
	for name, rows := range map[string][]row{
		"one that waits is in the table too":   {at(last+1, bytesOf(last+1))},
		"the newest is in the table too":       {at(head.Batches, bytesOf(head.Batches))},
		"one of the table waits too":           {waiting(bytesOf(last), tail)},
		"one waits that belongs to the table":  {at(last, nil), waiting(bytesOf(last), tail)},
		"one is in the table that should wait": {at(last+1, bytesOf(last+1)), waiting(tail[record.BatchSize:])},
		"all are in the table":                 {at(last+1, bytesOf(last+1)), at(last+2, bytesOf(last+2)), waiting()},
		"the first that waits is gone":         {waiting(tail[record.BatchSize:])},
		"the last that waits is gone":          {waiting(tail[:len(tail)-record.BatchSize])},
		"none waits":                           {waiting()},
		"the last one of the table is gone":    {at(last, nil)},
		"two that wait changed places":         {waiting(bytesOf(last+2), bytesOf(last+1), tail[2*record.BatchSize:])},
		"one waits twice":                      {waiting(bytesOf(last+1), tail[:len(tail)-record.BatchSize])},
		"one waits behind the last":            {waiting(tail, tail[:record.BatchSize])},
		"a byte waits behind the last":         {waiting(tail, tail[:1])},
	} {
		b.put(t, rows...)
		if rep := b.verify(t, lverify.Options{}); rep.OK {
			t.Errorf("%s: not noticed", name)
		}
		for _, r := range rows {
			b.put(t, row{r.b, r.key, nil})
		}
		b.put(t, b.rows...)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}

func TestAnyFlippedBit(t *testing.T) {
	b := newBench(t, full(t, 4, 40))
	rapid.Check(t, func(rt *rapid.T) {
		r := b.rows[rapid.IntRange(0, len(b.rows)-1).Draw(rt, "row")]
		if len(r.value) == 0 {
			return
		}
		bit := rapid.IntRange(0, 8*len(r.value)-1).Draw(rt, "bit")
		flip(r, bit)
		b.put(t, r)
		rep := b.verify(t, lverify.Options{})
		flip(r, bit)
		b.put(t, r)
		if rep.OK {
			rt.Fatalf("%s %x, bit %d: not noticed", r.b.Name, r.key, bit)
		}
	})
}

// A missing or moved row is noticed.
func TestEveryLostRow(t *testing.T) {
	b := newBench(t, full(t, 5, 14))
	for _, r := range b.rows {
		if r.b.Name == "ledger/flush" { // without the latter all is redone
			continue
		}
		b.put(t, row{r.b, r.key, nil})
		// ledger/moved cannot be derived from the journal
		if rep := b.verify(t, lverify.Options{}); rep.OK && r.b.Name != "ledger/moved" {
			t.Errorf("%s %x: lost, and not noticed", r.b.Name, r.key)
		}
		moved := row{r.b, slices.Clone(r.key), r.value}
		moved.key[len(moved.key)-1] ^= 0x40
		b.put(t, moved)
		if rep := b.verify(t, lverify.Options{}); rep.OK {
			t.Errorf("%s %x: moved, and not noticed", r.b.Name, r.key)
		}
		b.put(t, r)
		if rep := b.verify(t, lverify.Options{}); rep.OK {
			t.Errorf("%s %x: doubled, and not noticed", r.b.Name, r.key)
		}
		b.put(t, row{moved.b, moved.key, nil})
		b.put(t, r)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}

// A ledger of another format is refused with its format number and is not changed.
func TestAnotherFormat(t *testing.T) {
	f := newFile(t).open(false)
	all := full(t, 2, 10)
	for _, r := range all {
		switch {
		case string(r.key) == "format":
			r.value[1] = 1
		case string(r.key) == "head":
			r.value[0] = 1
		}
	}
	if _, err := store.Commit(t.Context(), f.s, store.Work, put(all)); err != nil {
		t.Fatal(err)
	}
	if rep := f.verify(lverify.Options{}); len(rep.Findings) != 1 ||
		!strings.Contains(rep.Findings[0].Detail, fmt.Sprintf("is 1, this program knows %d", tables.Format)) {
		t.Errorf("verify: %+v", rep)
	}
	if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); !errors.Is(err, store.ErrSchema) {
		t.Errorf("rebuild: %v", err)
	}
	if _, err := lverify.Import(t.Context(), f.s, strings.NewReader(""), lverify.ImportOptions{}); !errors.Is(
		err,
		store.ErrSchema,
	) {
		t.Errorf("import: %v", err)
	}
	f.view(func(r store.Reader) { same(t, rows(r), all) })
}

// endless reads as an export with a batch that never ends.
type endless struct {
	seq  uint64
	line []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.line) == 0 {
		l := record.Line{Kind: record.LineFormat, From: 1}
		if e.seq > 0 {
			r := record.Record{Op: record.OpFlags, Seq: e.seq, Batch: 1, At: 1, From: (e.seq + 1) / 2}
			name := fmt.Sprint("account", r.From)
			if e.seq%2 == 1 {
				r.Op, r.Name = record.OpOpen, name
			}
			l = record.Line{Kind: record.LineRecord, Raw: r.Append(nil), Record: r, Names: record.Names{From: name}}
		}
		e.line = l.Append(nil)
		e.seq++
	}
	n := copy(p, e.line)
	e.line = e.line[n:]
	return n, nil
}

// zeros reads as endless zero bytes without a newline.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	clear(p)
	z.read += len(p)
	return len(p), nil
}

// A batch without an end and a line without an end are rejected before they use much memory.
func TestHostileExports(t *testing.T) {
	in, line := &endless{}, &zeros{}
	for name, r := range map[string]io.Reader{"a batch": in, "a line": line} {
		f := newFile(t).open(false)
		rep, err := lverify.Import(t.Context(), f.s, r, lverify.ImportOptions{})
		if err != nil || rep.OK {
			t.Errorf("%s without end: %+v, %v", name, rep, err)
		}
		f.close()
	}
	if in.seq < 1<<14 || in.seq > 1<<16 || line.read > 1<<16 {
		t.Errorf("%d records and %d bytes of a line were read", in.seq, line.read)
	}
	text, _, _, _ := exported(t, 3, 3)
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	claim := strings.Replace(string(first), `"from_seq":1`, `"from_seq":18446744073709551615`, 1) + "\n" + string(rest)
	if rep := verifyExport(t, []byte(claim)); rep.OK {
		t.Error("records from another seq than said passed")
	}
}
