package record

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"ronbox/appliance/b3"
)

// goldenPeriodLines returns lines of each kind: those of the second period.
func goldenPeriodLines() []PeriodLine {
	first, second := goldenStatements()
	r := NewClose(&first)
	r.Seq, r.Batch, r.At = 10, 4, goldenAt
	base := []BaseLine{
		{Base: BaseAccount, Ref: 1, Name: "issuance:ron", Row: []byte("account")},
		{Base: BaseBalance, Ref: 1, Asset: 1, Row: []byte("balance")},
		{Base: BaseHold, Seq: 7, Row: []byte("hold")},
		{Base: BaseGuard, Key: [16]byte{15: 1}, Row: []byte("guard")},
		{Base: BaseOnce, Row: []byte("once")},
		{Base: BaseAsset, Asset: 1, Name: "ron", Row: []byte("asset")},
	}
	lines := []PeriodLine{
		{Kind: LinePeriod, Opening: NewPeriodOpening(&Statement{})},
		{Kind: LinePeriod, Opening: NewPeriodOpening(&first)},
	}
	for _, b := range base {
		lines = append(lines, PeriodLine{Kind: LineBase, Base: b})
	}
	return append(lines,
		PeriodLine{Kind: LineRecord, Entry: Line{Kind: LineRecord, Raw: r.Append(nil), Record: r}},
		PeriodLine{Kind: LineBatch, Entry: Line{Kind: LineBatch, Batch: Batch{No: 4, First: 10, Count: 1, At: goldenAt}}},
		PeriodLine{Kind: LineClose, Close: second.Text()})
}

// TestPeriodLinesAreFrozen compares the lines of a period file with a golden file, and reads them
// back.
func TestPeriodLinesAreFrozen(t *testing.T) {
	var lines [][]byte
	for _, l := range goldenPeriodLines() {
		text := l.Append(nil)
		lines = append(lines, text[:len(text)-1])
		for _, form := range [][]byte{text, text[:len(text)-1]} {
			back, err := ParsePeriodLine(form)
			if err != nil || back.Kind != l.Kind || !bytes.Equal(back.Append(nil), text) {
				t.Fatalf("%s\nread as %+v, %v", form, back, err)
			}
		}
	}
	frozen(t, "testdata/period.v1.ndjson", lines)
	if !panics(func() { new(PeriodLine).Append(nil) }) {
		t.Error("a line of no kind was written")
	}
}

// TestPeriodLineIsStrict changes each member of each line.
func TestPeriodLineIsStrict(t *testing.T) {
	for n, changes := range map[int][][2]string{
		0: {{`period":1`, `period":2`}, {`from_seq":1`, `from_seq":2`}, {`ing":""`, `ing":"x"`}, {`{"f`, `{ "f`}, {`b3:0`, `b3:1`}},
		1: {{`period":2`, `period":3`}, {`q":10`, `q":11`}, {`period-v1`, `period-v2`}, {`root":"b3:`, `root":"b3:0`}, {`"format`, `"base":"x","format`}},
		2: {{`"account"`, `"balance"`}, {`"ref":1`, `"ref":0`}, {`,"name":"issuance:ron"`, ``}, {`issuance:ron`, `x y`}, {`,"row"`, `,"seq":1,"row"`}},
		3: {{`"balance"`, `"account"`}, {`,"asset":1`, ``}, {`"asset":1`, `"asset":01`}, {`"row"`, `"name":"a","row"`}},
		4: {{`"hold"`, `"holds"`}, {`"seq":7`, `"seq":0`}, {`"row":"aG9sZA=="`, `"row":""`}, {`ZA==`, `ZB==`}},
		5: {{`"guard"`, `"asset"`}, {`01",`, `1",`}, {`"key":"`, `"key":"00`}, {`01",`, `0g",`}, {`01",`, `0A",`}},
		7: {{`"asset":1`, `"asset":4294967296`}, {`"ron"`, `"RON"`}},
		8: {{`"seq":10`, `"seq":11`}, {`"op":"close"`, `"op":"open"`}},
		10: {{`\"period\":2`, `\"period\":0`}, {`{"close":"`, `{"close":"x`}, {`{\"format`, `{\u0022format`}, {`}"}`, `}"}{}`},
			{`}"}`, `}"}` + strings.Repeat(" ", MaxPeriodLine)}},
	} {
		l := goldenPeriodLines()[n]
		text := string(l.Append(nil))
		for _, c := range changes {
			bad := strings.Replace(text, c[0], c[1], 1)
			var want *FormatError
			if got, err := ParsePeriodLine([]byte(bad)); bad == text || !errors.As(err, &want) {
				t.Errorf("line %d: %s for %s: read as %+v, %v", n, c[1], c[0], got, err)
			}
		}
	}
	export := Line{Kind: LineFormat, From: 1}
	for _, bad := range []string{"", "{}", "null", `{"close":""}`, `{"base":""}`, string(export.Append(nil))} {
		if got, err := ParsePeriodLine([]byte(bad)); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// TestPeriodLineLongest builds the longest statement and the longest row of a hold.
func TestPeriodLineLongest(t *testing.T) {
	const most = 1<<63 - 1
	digest := b3.Sum([]byte("x"))
	s := Statement{
		Period: most, Prev: digest, FromSeq: most, ToSeq: most + 1, FromBatch: most, ToBatch: most, FromAt: most,
		ToAt: most, LogRoot: digest, LastRoot: digest, Accounts: most, Assets: 1<<32 - 1, HoldsOpen: most,
		NamesRoot: digest, StateRoot: digest, References: most,
	}
	for range maxPeaks {
		s.Peaks = append(s.Peaks, digest)
	}
	lines := []PeriodLine{
		{Kind: LinePeriod, Opening: NewPeriodOpening(&s)},
		{Kind: LineBase, Base: BaseLine{Base: BaseHold, Seq: most, Row: make([]byte, MaxRecord+BatchSize+60*b3.Size+11)}},
		{Kind: LineClose, Close: s.Text()},
	}
	for _, l := range lines {
		text := l.Append(nil)
		if _, err := ParsePeriodLine(text); err != nil || len(text) > MaxPeriodLine {
			t.Errorf("%d bytes, of at most %d: %v", len(text), MaxPeriodLine, err)
		}
	}
}

// FuzzPeriodLine checks that a line that parses is the one form of what it says.
func FuzzPeriodLine(f *testing.F) {
	for _, l := range goldenPeriodLines() {
		f.Add(l.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParsePeriodLine(b)
		if err == nil && !bytes.Equal(bytes.TrimSuffix(l.Append(nil), []byte("\n")), bytes.TrimSuffix(b, []byte("\n"))) {
			t.Errorf("%s is written as %s", b, l.Append(nil))
		}
	})
}
