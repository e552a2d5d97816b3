package lverify_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// find returns the seqs of the records that a query finds, and fails unless each line is its record.
func find(t *testing.T, dir string, q lverify.Query) (seqs []uint64, err error) {
	t.Helper()
	files, err := lverify.OpenFiles(dir)
	if err != nil {
		return nil, err
	}
	err = files.Find(t.Context(), q, lverify.Options{}, func(l *record.Line, text []byte) error {
		again, err := record.ParseLine(text)
		if err != nil || again.Record.Seq != l.Record.Seq {
			t.Errorf("record %d: its line is %s: %v", l.Record.Seq, text, err)
		}
		seqs = append(seqs, l.Record.Seq)
		return nil
	})
	return seqs, err
}

// What is found in the files is what the ledger had, record by record.
func TestFindInFiles(t *testing.T) {
	all, _ := closed(t, 63, 25, 25, 25, 25)
	whole := newBench(t, all).tx.Reader()
	var texts [][]byte
	for n := range tables.Periods(whole, 1) {
		texts = append(texts, periodText(t, whole, n))
	}
	dir := folder(t, texts)
	h := tables.GetHorizon(whole)
	of, bound := map[string][]uint64{}, map[[16]byte]uint64{}
	for seq, rec := range tables.Records(whole, 1, h.Seq+1) {
		for _, ref := range []uint64{rec.From, rec.To} {
			if name, known := tables.Name(whole, ref); known && ref != 0 {
				of[name] = append(of[name], seq)
			}
		}
		if rec.Op.MovesMoney() && rec.Guard != (record.Guard{}) {
			bound[rec.Guard.Key] = seq
		}
		if got, err := find(t, dir, lverify.Query{TxID: rec.TxID()}); err != nil || !slices.Equal(got, []uint64{seq}) {
			t.Fatalf("record %d: %v, %v", seq, got, err)
		}
	}
	for name, want := range of {
		if got, err := find(t, dir, lverify.Query{Account: name}); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v, %v", name, got, want, err)
		}
	}
	for k := range 4 {
		key := ledger.HashReference("shop", fmt.Sprint("invoice ", k))
		got, err := find(t, dir, lverify.Query{Reference: key})
		if err != nil || bound[key] == 0 || !slices.Equal(got, []uint64{bound[key]}) {
			t.Errorf("invoice %d: %v, want %d, %v", k, got, bound[key], err)
		}
	}
	for _, q := range []lverify.Query{
		{TxID: record.NewTxID(1, 3, 7)}, {TxID: record.NewTxID(1, h.Seq+1, 7)},
		{Account: "nobody"}, {Account: "invoice 1"},
		{Reference: ledger.HashReference("other", "invoice 1")},
	} {
		if got, err := find(t, dir, q); !errors.Is(err, lverify.ErrNotFound) {
			t.Errorf("%+v: %v, %v", q, got, err)
		}
	}
}

// A search does not pass over a file that is missing, cut or damaged.
func TestFindInBadFiles(t *testing.T) {
	texts, _ := periodTexts(t, 64, 12, 12, 12, 12)
	for name, change := range map[string]func(path func(n uint64) string){
		"the first is missing": func(path func(uint64) string) { _ = os.Remove(path(1)) },
		"one is missing":       func(path func(uint64) string) { _ = os.Remove(path(2)) },
		"one is cut":           func(path func(uint64) string) { write(t, path(2), texts[1][:len(texts[1])/2]) },
		"a frame is cut":       func(path func(uint64) string) { cut(t, path(3)) },
		"lines are empty":      func(path func(uint64) string) { write(t, path(3), lines(texts[2], "\n")) },
		"lines are unknown":    func(path func(uint64) string) { write(t, path(3), lines(texts[2], "{\"x\":1}\n")) },
		"one is of zeros":      func(path func(uint64) string) { write(t, path(2), make([]byte, 64<<20)) },
	} {
		dir := folder(t, texts)
		change(func(n uint64) string { return filepath.Join(dir, record.PeriodFile(n)) })
		for _, q := range []lverify.Query{{Account: "nobody"}, {Reference: ledger.HashReference("shop", "invoice 9")}} {
			var bad *lverify.FileError
			if got, err := find(t, dir, q); !errors.As(err, &bad) || !strings.HasPrefix(bad.File, "period-00000") {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
	}
}

// lines returns a text with another line after its first, many times.
func lines(text []byte, line string) []byte {
	first, rest, _ := bytes.Cut(text, []byte{'\n'})
	return slices.Concat(first, []byte{'\n'}, bytes.Repeat([]byte(line), 1<<20), rest)
}

func cut(t *testing.T, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, raw[:len(raw)-9], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
