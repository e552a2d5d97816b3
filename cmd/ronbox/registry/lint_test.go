package registry

import (
	"strings"
	"testing"
)

func TestLint(t *testing.T) {
	for _, tt := range []struct {
		doc, file string
		items     int
		faults    string // "id field" of each
	}{
		{"a delta", `{"schema_version":"1.0.0","version":2,"mode":"delta","put":[{"id":"eu","kind":"region","meta":{}}],` +
			`"remove":["x"]}`, 1, ""},
		{"a full set", `{"schema_version":"1.0.0","items":[{"id":"node/A","kind":"node","meta":{}}]}`, 1, "items.0 id"},
		{"lines", "\n" + `{"id":"eu","kind":"region","meta":{}}` + "\n\n" + `{"id":"p","kind":"placement","meta":{}}` + "\n",
			2, "p id;p meta.content"},
		{"one line", `{"id":"eu","kind":"region","meta":{}}`, 1, ""},
		{"an id twice", strings.Repeat(`{"id":"eu","kind":"region","meta":{}}`+"\n", 2), 2, "eu id"},
		{"a line that is none", "eu\n", 1, "line 1 "},
		{"nothing to put", `{"schema_version":"1.0.0","put":[],"remove":["a"]}`, 0, ""},
	} {
		got, err := lint("file", []byte(tt.file))
		if err != nil {
			t.Errorf("%s: %v", tt.doc, err)
			continue
		}
		var faults []string
		for _, f := range got.Faults {
			faults = append(faults, f.ID+" "+f.Field)
		}
		if s := strings.Join(faults, ";"); s != tt.faults || got.Items != tt.items || got.OK != (s == "") {
			t.Errorf("%s: %+v, want faults %q", tt.doc, got, tt.faults)
		}
	}
	if _, err := lint("file", []byte(`{"schema_version":"1.0.0","put":{}}`)); err == nil {
		t.Error("put as an object is accepted")
	}
}
