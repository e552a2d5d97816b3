package lverify_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// unclosed is a ledger that has all records, as if no period was closed.
type unclosed struct{ r store.Reader }

func (u unclosed) Record(seq uint64) ([]byte, error) { return tables.Raw(u.r, seq), nil }

func (u unclosed) Batch(no uint64) (record.Batch, error) {
	b, _ := tables.Batch(u.r, no)
	return b, nil
}

func (u unclosed) Node(pos uint64) (b3.Digest, error) { return tables.LogNodes(u.r)(pos) }

func (u unclosed) Opened(ref uint64) (uint64, error) {
	return u.first(func(rec *record.Record) bool { return rec.Op == record.OpOpen && rec.From == ref })
}

func (u unclosed) Declared(ref uint32) (uint64, error) {
	return u.first(func(rec *record.Record) bool { return rec.Op == record.OpAsset && rec.Asset == ref })
}

func (u unclosed) Past(uint64) record.Past { return nil }

func (u unclosed) first(is func(rec *record.Record) bool) (uint64, error) {
	for seq, rec := range tables.Records(u.r, 1, tables.LastSeq(u.r)+1) {
		if is(rec) {
			return seq, nil
		}
	}
	return 0, errors.New("it is not there")
}

// openFiles opens the files of closed periods in a folder.
func openFiles(t testing.TB, dir string) *lverify.Files {
	t.Helper()
	f, err := lverify.OpenFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The proof of each record that the files make is that of a ledger which has closed nothing.
func TestProveFromFiles(t *testing.T) {
	all, _ := closed(t, 60, 25, 25, 25, 25, 25)
	whole := newBench(t, all).tx.Reader()
	var texts [][]byte
	for n := range tables.Periods(whole, 1) {
		texts = append(texts, periodText(t, whole, n))
	}
	files := openFiles(t, folder(t, texts))
	h := tables.GetHorizon(whole)
	holds := 0
	for seq, rec := range tables.Records(whole, 1, h.Seq+1) {
		got, s, err := files.Prove(t.Context(), rec.TxID(), lverify.Options{})
		if err != nil {
			t.Fatalf("record %d: %v", seq, err)
		}
		if s.Digest() != statementWith(whole, seq).Digest() || got.Head != s.Head() {
			t.Fatalf("record %d: it is proved against the statement of period %d", seq, s.Period)
		}
		want, err := record.Prove(unclosed{whole}, seq, s.ToBatch)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := text(t, got), text(t, want); !bytes.Equal(a, b) {
			t.Fatalf("record %d:\n%s\nwant:\n%s", seq, a, b)
		}
		if rec.Hold != 0 && rec.Hold < s.FromSeq {
			holds++
		}
	}
	if holds == 0 {
		t.Error("no hold is ended in a later period")
	}
	for _, id := range []record.TxID{
		{}, record.NewTxID(1, 3, 7), record.NewTxID(1, h.Seq+1, 7), record.NewTxID(1, 1<<40, 7),
	} {
		if _, _, err := files.Prove(t.Context(), id, lverify.Options{}); !errors.Is(err, lverify.ErrNotFound) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func text(t *testing.T, p record.Proof) []byte {
	t.Helper()
	raw, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// statementWith returns the statement of the period that has a record.
func statementWith(r store.Reader, seq uint64) *record.Statement {
	for n := uint64(1); ; n++ {
		if s := tables.StatementOf(r, n); seq <= s.ToSeq {
			return &s
		}
	}
}

// Files that are missing or bad make no proof, and the error names the file and the line.
func TestProveFromBadFiles(t *testing.T) {
	texts, _ := periodTexts(t, 61, 12, 12, 12, 12)
	var id record.TxID // of a payment in the second period, between accounts of the first
	for line := range bytes.Lines(texts[1]) {
		if l, _ := record.ParsePeriodLine(line); l.Entry.Record.Op == record.OpTransfer {
			id = l.Entry.Record.TxID()
		}
	}
	edit := func(n, line int, change func(line []byte) []byte) func(dir string) {
		return func(dir string) {
			lines := slices.Collect(bytes.Lines(texts[n-1]))
			if line < 0 {
				line += len(lines)
			}
			lines[line] = change(bytes.Clone(lines[line]))
			write(t, filepath.Join(dir, record.PeriodFile(uint64(n))), bytes.Join(lines, nil))
		}
	}
	raw := func(line []byte) []byte { line[len(line)-30] ^= 1; return line }
	gone := func([]byte) []byte { return nil }
	remove := func(periods ...uint64) func(dir string) {
		return func(dir string) {
			for _, n := range periods {
				_ = os.Remove(filepath.Join(dir, record.PeriodFile(n)))
			}
		}
	}
	replace := func(n uint64, text []byte) func(dir string) {
		return func(dir string) { write(t, filepath.Join(dir, record.PeriodFile(n)), text) }
	}
	others, _ := periodTexts(t, 62, 12, 12, 12, 12)
	for name, tt := range map[string]struct {
		change func(dir string)
		want   string
	}{
		"none":               {remove(1, 2, 3), "period-000001.ndjson.zst: it is missing"},
		"the first":          {remove(1), "period-000001.ndjson.zst: it is missing: an account or the asset"},
		"the second":         {remove(2), "period-000002.ndjson.zst: it is missing: the folder has period 3"},
		"the first two":      {remove(1, 2), "period-000002.ndjson.zst: it is missing: record"},
		"another ledger":     {replace(2, others[1]), "period-000003.ndjson.zst: line 1: period 2"},
		"another at the end": {replace(3, others[2]), "period-000003.ndjson.zst: line 1: period 2"},
		"another number":     {replace(2, texts[2]), "period-000002.ndjson.zst: line 1: the file is of period 3"},
		"a record":           {edit(1, 3, raw), "period-000001.ndjson.zst: line 4: "},
		"a record less":      {edit(2, -5, gone), "period-000002.ndjson.zst: line "},
		"a header":           {edit(2, -2, raw), "period-000002.ndjson.zst: line "},
		"no end":             {edit(2, -1, gone), "has no statement"},
		"zeros":              {replace(1, make([]byte, 64<<20)), "period-000001.ndjson.zst: line 1: it is longer"},
		"no frame": {func(dir string) {
			_ = os.WriteFile(filepath.Join(dir, record.PeriodFile(1)), []byte("nothing"), 0o600)
		}, "period-000001.ndjson.zst: the frame is damaged"},
	} {
		dir := folder(t, texts)
		tt.change(dir)
		var bad *lverify.FileError
		files, err := lverify.OpenFiles(dir)
		if err == nil {
			_, _, err = files.Prove(t.Context(), id, lverify.Options{})
		}
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// FuzzFiles checks that any lines make a proof that holds, or an error that says why not.
func FuzzFiles(f *testing.F) {
	texts, _ := periodTexts(f, 65, 8, 8, 8)
	var ids []record.TxID
	for line := range bytes.Lines(texts[1]) {
		if l, _ := record.ParsePeriodLine(line); l.Kind == record.LineRecord {
			ids = append(ids, l.Entry.Record.TxID())
		}
	}
	for i := range ids {
		f.Add(texts[1], i)
	}
	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	dir := folder(f, texts)
	f.Fuzz(func(t *testing.T, text []byte, i int) {
		path := filepath.Join(dir, record.PeriodFile(2))
		if err := os.WriteFile(path, z.EncodeAll(text, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		var bad *lverify.FileError
		files, err := lverify.OpenFiles(dir)
		if err == nil {
			id := ids[uint(i)%uint(len(ids))]
			var proof record.Proof
			if proof, _, err = files.Prove(t.Context(), id, lverify.Options{}); err == nil {
				_, err = proof.Verify()
			}
			if got, err := find(t, dir, lverify.Query{TxID: id}); err == nil && len(got) != 1 {
				t.Errorf("found: %v", got)
			}
		}
		if err != nil && !errors.As(err, &bad) && !errors.Is(err, lverify.ErrNotFound) {
			t.Error(err)
		}
	})
}
