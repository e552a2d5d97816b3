package csvfile

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// read returns the records of a file, cell by cell, and the first fault.
func read(in string) (text string, err error) {
	r, err := NewReader(strings.NewReader(in), []string{"actor", "metric", "qty", "content"}, "actor", "qty")
	for err == nil {
		var cells []string
		var line int
		if cells, line, err = r.Read(); err == nil {
			text += fmt.Sprint(line, cells[r.Column("actor")], "=", cells[r.Column("qty")], ";")
		}
	}
	return text, err
}

func TestFilesOfSpreadsheets(t *testing.T) {
	for _, tt := range []struct{ doc, in, want string }{
		{"as Excel's CSV UTF-8", "\ufeffactor,metric,qty\r\nxa,requests,1\r\n", "2xa=1;"},
		{"in another order", "qty,actor\n1,a\n2,b\n", "2a=1;3b=2;"},
		{"quotes and empty lines", "\nactor,qty\n\n\"a,\nb\",1\nc,2\n", "4a,\nb=1;6c=2;"},
		{"a header alone", "actor,qty", ""},
		{"nothing", "", ""},
		{"a mark alone", "\ufeff", ""},
	} {
		if got, err := read(tt.in); got != tt.want || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, %v, want %q", tt.doc, got, err, tt.want)
		}
	}
}

func TestFaultsNameLineAndColumn(t *testing.T) {
	for _, tt := range []struct{ doc, in, want string }{
		{"an unknown column", "actor,qtty\n", `line 1: the first line names the columns: "qtty" is unknown; did you mean qty?`},
		{"a space", "actor, qty\n", `line 1: the first line names the columns: " qty" is unknown; did you mean qty?`},
		{"a column twice", "actor,actor\n", `line 1: the first line names the columns: "actor" stands twice`},
		{"a missing column", "actor,metric\n", "line 1: the first line names the columns: qty is missing"},
		{"semicolons", "actor;qty\n", `line 1: the first line names the columns: put a comma between them`},
		{"UTF-16", "\xff\xfea\x00,\x00", "line 1: it is not text in UTF-8"},
		{"too few fields", "actor,qty\na,1\nb\n", "line 3: 1 fields where the header has 2"},
		{"an open quote", "actor,qty\n\"a,1\n", "line 2: "},
		{"an endless record", "actor,qty\n\"" + strings.Repeat("x\n", MaxRecord), "line 2: a record is longer"},
		{"an endless header", strings.Repeat("x", 4*MaxRecord), "line 1: a record is longer"},
	} {
		_, err := read(tt.in)
		if _, ok := errors.AsType[*Fault](err); !ok || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.doc, err, tt.want)
		}
	}
}
