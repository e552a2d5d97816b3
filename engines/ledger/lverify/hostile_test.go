package lverify_test

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"

	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
)

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
