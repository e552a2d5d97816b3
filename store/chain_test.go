package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func note(reason string, err error) do[int] {
	return do[int]{"test.audit/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		w.Audit(
			Event{
				Event:    "test",
				Decision: "allow",
				Reason:   reason,
				CorrID:   "c",
				Detail:   map[string]string{"k": "\xff", "a": "<b>"},
			},
		)
		return 0, err
	}}
}

func (r *rig) auditRows() (out []AuditRow) {
	r.t.Helper()
	if err := r.View(r.t.Context(), func(rd Reader) (err error) {
		if _, err := checkAudit(rd, r.Info().position()); err != nil {
			return err
		}
		out, err = Audit(rd, 0, 1000)
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// The ring follows its setting: a shorter ring deletes old rows as new rows are written, a longer
// ring keeps more, and a disabled ring writes no rows. The chain verifies throughout, also offline.
func TestAuditRing(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	write := func(n int) {
		for i := range n {
			mustCommit(r, note(fmt.Sprint(i), nil))
		}
	}
	expect := func(first, last uint64) {
		t.Helper()
		got := r.auditRows()
		if len(got) == 0 || got[0].Seq != first || got[len(got)-1].Seq != last || r.Info().AuditFirst != first {
			t.Errorf("rows %d, first of Info %d; want %d to %d", len(got), r.Info().AuditFirst, first, last)
		}
	}
	write(10)
	expect(1, 10)
	r.SetAudit(AuditConfig{Enabled: true, Retain: 4})
	expect(1, 10)
	write(1)
	expect(8, 11)
	r.SetAudit(AuditConfig{Enabled: true, Retain: 6})
	write(3)
	expect(9, 14)
	r.SetAudit(AuditConfig{Retain: 6})
	write(3)
	expect(9, 14)
	r.stop()
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK || rep.Info.AuditFirst != 9 {
		t.Errorf("%+v, %v", rep, err)
	}
	r = open(t, path)
	write(1)
	expect(9, 15)
	r.stop()
}

// Audited receives rows after they are synced and after what they tell of has happened, in order and
// with their hashes. It does not receive rows of refused commands.
func TestAudited(t *testing.T) {
	var mu sync.Mutex
	var told []AuditRow
	done := 0
	s := newStore(newFile(t), testConfig())
	s.opt.Audited = func(rows []AuditRow) {
		mu.Lock()
		defer mu.Unlock()
		if last := rows[len(rows)-1]; s.Info().AuditSeq != last.Seq {
			t.Errorf("row %d is told, Info has %d", last.Seq, s.Info().AuditSeq)
		}
		if done != len(told)+len(rows) {
			t.Errorf("%d rows are told after %d commands", len(told)+len(rows), done)
		}
		told = append(told, rows...)
	}
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	r := (&rig{Store: s, t: t}).start()
	for i := range 5 {
		mustCommit(r, note(fmt.Sprint(i), nil), func(int) { done++ })
		if _, err := Commit(t.Context(), s, Work, note("refused", errRefused)); !errors.Is(err, errRefused) {
			t.Fatal(err)
		}
		mustCommit(r, put{Key: "k"})
	}
	mu.Lock()
	defer mu.Unlock()
	if want := r.auditRows(); fmt.Sprint(told) != fmt.Sprint(want) || len(want) != 5 {
		t.Errorf("told %v, stored %v", told, want)
	}
	r.stop()
}

// exported returns both forms of an export of the same chain.
func exported(t *testing.T) (asRows, asFile []byte, last AuditRow) {
	t.Helper()
	path := newFile(t)
	r := open(t, path)
	r.SetAudit(AuditConfig{Enabled: true, Retain: 4})
	for i := range 6 {
		mustCommit(r, note(fmt.Sprint(i), nil))
	}
	for _, row := range r.auditRows() {
		line, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		asRows, last = append(append(asRows, line...), '\n'), row
	}
	r.stop()
	var file bytes.Buffer
	rows, err := Export(t.Context(), path, &file, nil)
	if err != nil || int(rows) != bytes.Count(file.Bytes(), []byte("\n")) {
		t.Fatalf("%d rows, %v", rows, err)
	}
	return asRows, file.Bytes(), last
}

// CheckAudit accepts an intact export and rejects changed, removed, duplicated and reordered rows.
func TestCheckAudit(t *testing.T) {
	asRows, asFile, last := exported(t)
	for name, text := range map[string][]byte{"rows": asRows, "file": asFile} {
		got, err := CheckAudit(bytes.NewReader(text))
		if want := (ChainReport{Rows: 4, First: 3, Last: 6, Head: last.Hash}); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, want)
		}
	}
	lines := strings.SplitAfter(strings.TrimSpace(string(asRows)), "\n")
	swapped := slices.Clone(lines)
	swapped[1], swapped[2] = swapped[2], swapped[1]
	for name, text := range map[string]string{
		"a changed reason": strings.Replace(string(asRows), `"reason":"4"`, `"reason":"5"`, 1),
		"a changed time":   strings.Replace(string(asRows), `"at":"20`, `"at":"19`, 1),
		"a changed detail": strings.Replace(string(asRows), `"a":`, `"b":`, 1),
		"a row taken out":  strings.Join(slices.Delete(slices.Clone(lines), 1, 2), ""),
		"rows exchanged":   strings.Join(swapped, ""),
		"a row twice":      lines[0] + lines[0],
		"another member":   strings.Replace(string(asRows), `"seq"`, `"x":1,"seq"`, 1),
		"no JSON":          "garbage",
		"a number":         "7\n",
	} {
		if got, err := CheckAudit(strings.NewReader(text)); !errors.Is(err, ErrCorrupt) ||
			!strings.HasPrefix(err.Error(), "line ") {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if got, err := CheckAudit(strings.NewReader("\n")); err != nil || got != (ChainReport{}) {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	if _, err := CheckAudit(strings.NewReader(strings.Repeat("x", maxAuditLine+1))); err == nil {
		t.Error("a line without an end passes")
	}
}

// An export of the file contains the end of its chain in the rows of meta, so CheckAudit detects a
// truncated export wherever it was cut.
func TestCheckAuditOfACutExport(t *testing.T) {
	_, asFile, _ := exported(t)
	lines := strings.SplitAfter(strings.TrimSuffix(string(asFile), "\n"), "\n")
	last := 0
	for i, l := range lines {
		if strings.HasPrefix(l, `{"bucket":"audit"`) {
			last = i
		}
	}
	for cut := last + 1; cut > 0; cut-- { // after the chain, and inside it
		if got, err := CheckAudit(strings.NewReader(strings.Join(lines[:cut], ""))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut behind line %d: %+v, %v", cut, got, err)
		}
	}
	tail := strings.Join(slices.Delete(slices.Clone(lines), last, last+1), "")
	if got, err := CheckAudit(strings.NewReader(tail)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without the newest row: %+v, %v", got, err)
	}
	first := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, `{"bucket":"audit"`) })
	head := strings.Join(slices.Delete(slices.Clone(lines), first, first+1), "")
	if got, err := CheckAudit(strings.NewReader(head)); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without the oldest row: %+v, %v", got, err)
	}
}

// Every event is read back from its line with its stored hash.
func TestAuditLineRoundTrip(t *testing.T) {
	text := rapid.StringN(0, 20, -1)
	rapid.Check(t, func(t *rapid.T) {
		e := Event{
			Event:     text.Draw(t, "event"),
			Decision:  text.Draw(t, "decision"),
			Reason:    text.Draw(t, "reason"),
			UID:       text.Draw(t, "uid"),
			CapID:     text.Draw(t, "cap"),
			Principal: text.Draw(t, "principal"),
			CorrID:    text.Draw(t, "corr"),
			Detail:    rapid.MapOf(text, text).Draw(t, "detail"),
		}.bounded()
		at := rapid.Int64Range(0, positionMax).Draw(t, "at")
		raw, err := encodeCBOR(auditValue{At: at, Prev: make([]byte, 32), Event: e})
		if err != nil {
			t.Fatal(err)
		}
		row, err := parseAudit(auditKey(7), raw)
		if err != nil {
			t.Fatal(err)
		}
		line, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		back, skip, err := new(metaLines).parseLine(line)
		if err != nil || skip || back.Hash != row.Hash || back.At != at {
			t.Fatalf("%s: %+v, %v", line, back, err)
		}
	})
}

// The parser does not panic on any line, and every row that it accepts has a hash.
func FuzzAuditLine(f *testing.F) {
	f.Add([]byte(`{"bucket":"audit","key":"0000000000000001","value":"AaMB"}`))
	f.Add([]byte(`{"seq":1,"at":"2026-01-01T00:00:00Z","event":"e","decision":"allow","prev":"b3:","hash":"b3:"}`))
	f.Add([]byte(`{"bucket":"x"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		row, skip, err := new(metaLines).parseLine(line)
		if err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%q: %v", line, err)
		}
		if err == nil && !skip && row.Hash.IsZero() {
			t.Errorf("%q: %+v", line, row)
		}
	})
}
