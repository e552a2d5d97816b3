package intake_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/intake"
)

// room counts what is reserved, and refuses beyond most.
type room struct{ has, most int64 }

var errRoom = errors.New("no room")

func (r *room) Reserve(_ context.Context, bytes int64) error {
	if r.has+bytes > r.most {
		return errRoom
	}
	r.has += bytes
	return nil
}

func (r *room) Release(bytes int64) { r.has -= bytes }

// body fails a test if it is read before its size is reserved.
type body struct {
	*strings.Reader
	t    *testing.T
	room *room
	size int64
}

func (b body) Read(p []byte) (int, error) {
	if b.room.has < b.size {
		b.t.Errorf("read with %d bytes reserved, the object has %d", b.room.has, b.size)
	}
	return b.Reader.Read(p)
}

// An object that is shorter, longer or other than announced is refused, as is one without room. It
// leaves no file, and no room stays reserved.
func TestReceive(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		doc, sent string
		most      int64
		lie       bool
		placed    bool
	}{
		{"as announced", "hello", 5, false, true},
		{"shorter", "hell", 5, true, false},
		{"longer", "hello!", 5, true, false},
		{"other", "HELLO", 5, true, false},
		{"without room", "hello", 4, false, false},
	} {
		dir := t.TempDir()
		c := cas.New(dir, cas.Faults{})
		if err := c.Prepare(); err != nil {
			t.Fatal(err)
		}
		r, placed := &room{most: tt.most}, false
		in := body{strings.NewReader(tt.sent), t, r, 5}
		err := intake.Receive(t.Context(), c, r, b3.Sum([]byte("hello")), 5, in, func(temp *cas.Temp) error {
			placed = true
			temp.Drop()
			return nil
		})
		if placed != tt.placed || errors.As(err, new(*asset.DigestError)) != tt.lie || (err == nil) != tt.placed {
			t.Errorf("%s: placed %t, %v", tt.doc, placed, err)
		}
		left, _ := os.ReadDir(filepath.Join(dir, "tmp"))
		if len(left) != 0 || r.has != 0 {
			t.Errorf("%s: %d files are left, %d bytes stay reserved", tt.doc, len(left), r.has)
		}
	}
}
