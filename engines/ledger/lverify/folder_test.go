package lverify_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
)

// folder writes files of periods.
func folder(t testing.TB, texts [][]byte) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, text := range texts {
		write(t, filepath.Join(dir, record.PeriodFile(uint64(i+1))), text)
	}
	return dir
}

func write(t testing.TB, path string, text []byte) {
	t.Helper()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, z.EncodeAll(text, nil), 0o600); err != nil {
		t.Fatal(err)
	}
}

func verifyFolder(t *testing.T, dir string) (*lverify.Periods, lverify.Report) {
	t.Helper()
	p := lverify.NewPeriods(lverify.Options{})
	rep, err := p.Folder(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return p, rep
}

// The files of a folder, and the database or an export that goes on from them, prove every record.
func TestVerifyFolder(t *testing.T) {
	all, left := closed(t, 50, 25, 25, 25)
	whole := newBench(t, all).tx.Reader()
	texts := [][]byte{periodText(t, whole, 1), periodText(t, whole, 2)}
	b := newBench(t, dropped(all, left))
	head, _ := tables.GetHead(whole)
	h := tables.GetHorizon(whole)
	dir := folder(t, texts)
	p, sum := verifyFolder(t, dir)
	if !sum.OK || sum.Records != h.Seq || sum.FromSeq != 0 {
		t.Fatalf("%+v", sum)
	}
	if err := p.Database(t.Context(), b.tx.Reader(), &sum); err != nil || !sum.OK || sum.Records != head.Seq ||
		sum.Head.Seq != head.Seq || sum.FromSeq != 0 || sum.Periods != 0 {
		t.Fatalf("%+v, %v", sum, err)
	}
	root := sum.Head.Root
	text := (&record.Line{Kind: record.LineFormat, From: h.Seq + 1, Prev: h.LastRoot}).Append(nil)
	text = linesOf(whole, text, h.Batch+1, head.Batches)
	p, sum = verifyFolder(t, dir)
	if err := p.Export(t.Context(), bytes.NewReader(text), &sum); err != nil || !sum.OK || sum.Records != head.Seq ||
		sum.Head.Root != root || sum.Accounts != head.Accounts || sum.Holds != head.OpenHolds {
		t.Fatalf("%+v, %v", sum, err)
	}
	early := (&record.Line{Kind: record.LineFormat, From: h.Seq, Prev: h.LastRoot}).Append(nil)
	p, sum = verifyFolder(t, dir)
	if err := p.Export(t.Context(), bytes.NewReader(early), &sum); err != nil || sum.OK {
		t.Errorf("an export that begins earlier: %+v, %v", sum, err)
	}
	p, sum = verifyFolder(t, folder(t, texts[:1]))
	if err := p.Database(t.Context(), b.tx.Reader(), &sum); err != nil || sum.OK {
		t.Errorf("without the last file: %+v, %v", sum, err)
	}
	other, left := closed(t, 51, 25, 25, 25)
	p, sum = verifyFolder(t, dir)
	err := p.Database(t.Context(), newBench(t, dropped(other, left)).tx.Reader(), &sum)
	if err != nil || sum.OK {
		t.Errorf("another ledger: %+v, %v", sum, err)
	}
}

// A folder that lacks a file, or has one that is cut or no frame, is bad.
func TestVerifyBadFolder(t *testing.T) {
	texts, _ := periodTexts(t, 52, 10, 10, 10, 10)
	for name, tt := range map[string]struct {
		change func(dir string)
		where  string
	}{
		"the first is missing": {func(dir string) { _ = os.Remove(filepath.Join(dir, record.PeriodFile(1))) }, "period-000001"},
		"one is missing":       {func(dir string) { _ = os.Remove(filepath.Join(dir, record.PeriodFile(2))) }, "period-000002"},
		"one is cut": {func(dir string) {
			raw, _ := os.ReadFile(filepath.Join(dir, record.PeriodFile(2)))
			_ = os.WriteFile(filepath.Join(dir, record.PeriodFile(2)), raw[:len(raw)/2], 0o600)
		}, "period-000002"},
		"one is changed": {func(dir string) {
			raw, _ := os.ReadFile(filepath.Join(dir, record.PeriodFile(3)))
			raw[len(raw)/2] ^= 1
			_ = os.WriteFile(filepath.Join(dir, record.PeriodFile(3)), raw, 0o600)
		}, "period-000003"},
		"one is no frame": {func(dir string) {
			_ = os.WriteFile(filepath.Join(dir, record.PeriodFile(1)), []byte("not a frame"), 0o600)
		}, "period-000001"},
		"one is empty": {func(dir string) {
			_ = os.WriteFile(filepath.Join(dir, record.PeriodFile(1)), nil, 0o600)
		}, "period-000001"},
		"one is full of zeros": {func(dir string) {
			write(t, filepath.Join(dir, record.PeriodFile(1)), make([]byte, 64<<20))
		}, "period-000001.ndjson.zst: line 1"},
		"one ends with zeros": {func(dir string) {
			write(t, filepath.Join(dir, record.PeriodFile(2)), slices.Concat(texts[1], make([]byte, 1<<20)))
		}, fmt.Sprintf("period-000002.ndjson.zst: line %d", bytes.Count(texts[1], []byte{'\n'})+1)},
	} {
		dir := folder(t, texts)
		tt.change(dir)
		_, rep := verifyFolder(t, dir)
		if rep.OK || !slices.ContainsFunc(rep.Findings, func(f lverify.Finding) bool {
			return strings.HasPrefix(f.Where, tt.where)
		}) {
			t.Errorf("%s: %+v", name, rep)
		}
	}
	if _, rep := verifyFolder(t, t.TempDir()); !rep.OK || rep.Records != 0 {
		t.Errorf("no files: %+v", rep)
	}
}
