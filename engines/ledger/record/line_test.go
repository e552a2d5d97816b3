package record

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func drawLine(t *rapid.T) Line {
	switch LineKind(rapid.IntRange(int(LineFormat), int(LineBatch)).Draw(t, "kind")) {
	case LineFormat:
		return Line{Kind: LineFormat, From: max(1, drawUint(t, "from seq")), Prev: drawDigest(t, "prev")}
	case LineBatch:
		return Line{Kind: LineBatch, Batch: drawBatch(t)}
	}
	r := drawRecord().Draw(t, "record")
	l := Line{Kind: LineRecord, Raw: r.Append(nil)}
	account := rapid.StringMatching(`[A-Za-z0-9:/_-]{1,256}`)
	switch {
	case r.Op == OpOpen:
		r.From = max(1, r.From)
		l.Names.From = r.Name
	case r.From != 0:
		l.Names.From = account.Draw(t, "from")
	}
	if r.To != 0 {
		l.Names.To = account.Draw(t, "to")
	}
	switch {
	case r.Op == OpAsset:
		r.Asset = max(1, r.Asset)
		l.Names.Asset = r.Name
	case r.Asset != 0:
		l.Names.Asset = rapid.StringMatching(`[a-z0-9]{1,16}`).Draw(t, "asset")
	}
	l.Raw = r.Append(nil)
	l.Record, _ = Decode(l.Raw)
	return l
}

// A line is a single line of at most MaxLine bytes, and parses to an equal line with and without
// its newline.
func TestLineRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLine(t)
		text := l.Append([]byte("before"))[6:]
		if bytes.Count(text, []byte{'\n'}) != 1 || len(text) > MaxLine {
			t.Fatalf("%d bytes: %s", len(text), text)
		}
		for _, form := range [][]byte{text, text[:len(text)-1]} {
			back, err := ParseLine(form)
			if err != nil || back.Kind != l.Kind || back.From != l.From || back.Prev != l.Prev || back.Batch != l.Batch || back.Names != l.Names ||
				!bytes.Equal(back.Raw, l.Raw) ||
				!same(back.Record, l.Record) {
				t.Fatalf("%s\nread as %+v, %v", form, back, err)
			}
		}
	})
}

// A line with a flipped bit parses only if the bit is in the name of a ref or in the format line.
// It never changes the meaning of the record's bytes.
func TestLineAltered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLine(t)
		text := l.Append(nil)
		bit := rapid.IntRange(0, 8*len(text)-1).Draw(t, "bit")
		text[bit/8] ^= 1 << (bit % 8)
		got, err := ParseLine(text)
		if err == nil &&
			(l.Kind == LineBatch || l.Kind == LineRecord && (got.Names == l.Names || !bytes.Equal(got.Raw, l.Raw))) {
			t.Fatalf("%s\nread as %+v", text, got)
		}
	})
}

func TestLineIsStrict(t *testing.T) {
	lines := map[string]string{}
	r := Record{Op: OpTransfer, Seq: 5, Batch: 2, At: goldenAt, Asset: 1, From: 1, To: 2, Memo: "a\tb"}
	record := Line{
		Kind:   LineRecord,
		Raw:    r.Append(nil),
		Record: r,
		Names:  Names{From: "alice", To: "bob", Asset: "ron"},
	}
	lines["record"] = string(record.Append(nil))
	lines["format"] = string((&Line{Kind: LineFormat, From: 7}).Append(nil))
	lines["batch"] = string((&Line{Kind: LineBatch, Batch: Batch{No: 1, First: 1, Count: 5, At: goldenAt}}).Append(nil))
	for _, tt := range []struct{ line, old, new string }{
		{"record", `"to":"bob",`, ``}, {"record", `"alice"`, `"al ice"`}, {"record", `"asset":"ron"`, `"asset":"RON"`}, {"record", `"seq":5`, `"seq":6`},
		{"record", `"seq":5,"batch":2`, `"batch":2,"seq":5`}, {"record", `"memo":"a\tb"`, `"memo":"ab"`}, {"record", `\t`, `\u0009`}, {"record", `,"to"`, `, "to"`},
		{"record", `"amount_minor":"0"`, `"amount_minor":"1"`}, {"record", `{"seq"`, `{"format":"` + exportFormat + `","seq"`},
		{"record", `"record":"AQY`, `"record":"AQU`}, {"record", "}\n", "}\n\n"}, {"record", "}\n", "}{}\n"},
		{"format", `export-v1`, `export-v2`}, {"format", `"from_seq":7`, `"from_seq":0`}, {"format", `,"prev_root":"b3:`, `,"prev_root":"b4:`},
		{"batch", `"count":5`, `"count":6`}, {"batch", `"root":"b3:`, `"root":"b3:0`}, {"batch", `"header":"AQAA`, `"header":"AgAA`},
		{"batch", lines["batch"], "{}"}, {"batch", lines["batch"], ""}, {"batch", lines["batch"], "null"}, {"batch", `}`, strings.Repeat(" ", MaxLine) + `}`},
	} {
		bad := strings.Replace(lines[tt.line], tt.old, tt.new, 1)
		var want *FormatError
		if got, err := ParseLine([]byte(bad)); bad == lines[tt.line] || !errors.As(err, &want) {
			t.Errorf("%s: %s for %s: read as %+v, %v", tt.line, tt.new, tt.old, got, err)
		}
	}
	if !panics(func() { new(Line).Append(nil) }) {
		t.Error("a line of no kind was written")
	}
}

// The longest line is not longer than MaxLine.
func TestLineLongest(t *testing.T) {
	r := fullest()
	r.Memo = strings.Repeat("\x01", MaxMemo)
	long := strings.Repeat("a", 256)
	l := Line{Kind: LineRecord, Raw: r.Append(nil), Record: r, Names: Names{From: long, To: long, Asset: long[:16]}}
	text := l.Append(nil)
	if _, err := ParseLine(text); err != nil || len(text) > MaxLine {
		t.Errorf("%d bytes, of at most %d: %v", len(text), MaxLine, err)
	}
}
