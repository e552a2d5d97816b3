package registry

import (
	"bytes"
	"io"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAcceptedCoding(t *testing.T) {
	for _, tt := range []struct {
		lines []string
		want  string
	}{
		{nil, ""}, {[]string{"identity"}, ""}, {[]string{"gzip"}, "gzip"}, {[]string{"zstd, gzip"}, "zstd"}, {[]string{"gzip, zstd;q=0.5"}, "gzip"},
		{[]string{"gzip;q=0, zstd;q=0"}, ""}, {[]string{"*"}, "zstd"}, {[]string{"*, zstd;q=0"}, "gzip"}, {[]string{"GZIP ; q=0.2"}, "gzip"},
		{[]string{"br", "gzip"}, "gzip"}, {[]string{"gzip;q=x"}, ""},
	} {
		if got := accepted(tt.lines); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.lines, got, tt.want)
		}
	}
}

// A large version is sent compressed, decodes to the same bytes in each coding, and has a tag for
// each.
func TestEncode(t *testing.T) {
	body := bytes.Repeat([]byte(`{"id":"service/a","kind":"service","meta":{}},`), 30_000)
	e := newEncoder()
	for coding, open := range map[string]func([]byte) ([]byte, error){
		"gzip": func(raw []byte) ([]byte, error) {
			r, err := gzip.NewReader(bytes.NewReader(raw))
			if err != nil {
				return nil, err
			}
			return io.ReadAll(r)
		},
		"zstd": func(raw []byte) ([]byte, error) {
			r, err := zstd.NewReader(nil)
			if err != nil {
				return nil, err
			}
			defer r.Close()
			return r.DecodeAll(raw, nil)
		},
	} {
		for range 2 { // the second by a writer that was used
			raw := e.encode(coding, body)
			if got, err := open(raw); err != nil || !bytes.Equal(got, body) || len(raw) > len(body)/10 {
				t.Errorf("%s: %d of %d bytes, %v", coding, len(raw), len(body), err)
			}
		}
	}
	if tagOf(`"b3:x"`, "zstd") != `"b3:x-zstd"` {
		t.Errorf("tag %s", tagOf(`"b3:x"`, "zstd"))
	}
}
