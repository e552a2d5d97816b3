package record

import (
	"encoding/hex"
	"strings"
	"testing"

	"ronbox/appliance/b3"
)

// goldenStatements returns the statements of two periods.
func goldenStatements() (first, second Statement) {
	digest := func(s string) b3.Digest { return b3.Sum([]byte(s)) }
	first = Statement{
		Period: 1, FromSeq: 1, ToSeq: 9, FromBatch: 1, ToBatch: 3, FromAt: goldenAt, ToAt: goldenAt + 2,
		LogRoot: digest("log"), LastRoot: digest("last"), Peaks: []b3.Digest{digest("a"), digest("b")},
		Accounts: 4, Assets: 1, HoldsOpen: 1, NamesRoot: digest("names"), StateRoot: digest("state"), References: 2,
	}
	second = first
	second.Period, second.Prev, second.FromSeq, second.ToSeq = 2, first.Digest(), 10, 10
	second.FromBatch, second.ToBatch, second.FromAt, second.ToAt = 4, 4, goldenAt+3, goldenAt+3
	return first, second
}

// TestStatementsAreFrozen compares the texts of statements, and the records that close their
// periods, with a golden file.
func TestStatementsAreFrozen(t *testing.T) {
	var lines [][]byte
	first, second := goldenStatements()
	if err := second.Follows(&first); err != nil {
		t.Fatal(err)
	}
	for i, s := range []Statement{first, second} {
		r := NewClose(&s)
		r.Seq, r.Batch, r.At = uint64(20+i), 5, goldenAt
		raw := r.Append(nil)
		if back, err := Decode(raw); err != nil || back.Op != OpClose || back.Dedupe.Fingerprint != s.Digest() {
			t.Fatalf("record %+v, %v", back, err)
		}
		if back, err := ParseStatement(s.Text()); err != nil || back.Text() != s.Text() {
			t.Fatalf("statement %+v, %v", back, err)
		}
		lines = append(lines, []byte(s.Text()), []byte(s.Digest().String()), []byte(hex.EncodeToString(raw)))
	}
	frozen(t, "testdata/statements.txt", lines)
}

func TestParseStatementIsStrict(t *testing.T) {
	first, _ := goldenStatements()
	text := first.Text()
	for name, change := range map[string][2]string{
		"format":  {"statement-v1", "statement-v2"},
		"space":   {`,"period"`, `, "period"`},
		"member":  {`{"format"`, `{"x":1,"format"`},
		"period":  {`"period":1,`, `"period":2,`},
		"records": {`"records":9`, `"records":8`},
		"seq":     {`"to_seq":9`, `"to_seq":0`},
		"peaks":   {`"peaks":[`, `"peaks":[],"peaks2":[`},
	} {
		bad := strings.Replace(text, change[0], change[1], 1)
		if bad == text {
			t.Fatalf("%s: nothing is changed", name)
		}
		if s, err := ParseStatement(bad); err == nil {
			t.Errorf("%s: it is the statement %+v", name, s)
		}
	}
	if _, err := ParseStatement(text + strings.Repeat(" ", MaxStatement)); err == nil {
		t.Error("a text of any length is a statement")
	}
}

// TestStatementsFollow changes each member that ties a statement to the one before.
func TestStatementsFollow(t *testing.T) {
	first, second := goldenStatements()
	for name, change := range map[string]func(*Statement){
		"period":   func(s *Statement) { s.Period++ },
		"digest":   func(s *Statement) { s.Prev[0]++ },
		"seq":      func(s *Statement) { s.FromSeq++ },
		"batch":    func(s *Statement) { s.FromBatch++ },
		"time":     func(s *Statement) { s.FromAt = first.ToAt },
		"accounts": func(s *Statement) { s.Accounts-- },
		"assets":   func(s *Statement) { s.Assets-- },
	} {
		bad := second
		if change(&bad); bad.Follows(&first) == nil {
			t.Errorf("%s: it follows", name)
		}
	}
}
