package edge_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
)

// fakeMembers is another member with the objects that were copied to it.
type fakeMembers struct {
	mu      sync.Mutex
	has     map[b3.Digest]string
	down    bool
	lies    string // sent first, before the true bytes, if not ""
	fetches int
	before  func() // called before the bytes are sent, if not nil
}

func (f *fakeMembers) Copy(_ context.Context, d b3.Digest, size int64, open func() (io.ReadCloser, error)) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.down {
		return 0
	}
	body, err := open()
	if err != nil {
		return 0
	}
	text, err := io.ReadAll(body)
	if err != nil || body.Close() != nil || int64(len(text)) != size {
		return 0
	}
	f.has[d] = string(text)
	return 1
}

var errDown = errors.New("the member is down")

func (f *fakeMembers) Fetch(_ context.Context, d b3.Digest, _ int64, take func(io.Reader) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fetches++
	if f.down {
		return errDown
	}
	text, ok := f.has[d]
	if !ok {
		return asset.ErrNotFound
	}
	if f.before != nil {
		f.before()
	}
	if f.lies != "" {
		if err := take(strings.NewReader(f.lies)); err == nil {
			return nil
		}
	}
	return take(strings.NewReader(text))
}

// member returns the rig of a member of a cluster.
func member(t *testing.T) (*rig, *fakeMembers) {
	t.Helper()
	f := &fakeMembers{has: map[b3.Digest]string{}}
	return newRig(t, func(r *rig) { r.members = f }).start(), f
}

// lose removes the file of an object, as if this node had only the rows.
func (r *rig) lose(d b3.Digest) {
	r.t.Helper()
	if err := os.Remove(r.file(d)); err != nil {
		r.t.Fatal(err)
	}
	r.e.Purge()
}

// The answer to a put has the number of copies in the cluster, and no such number on a node alone.
func TestCopies(t *testing.T) {
	t.Parallel()
	if p := newRig(t).start().mustPut("alone"); p.Copies != 0 {
		t.Errorf("alone: %+v", p)
	}
	r, f := member(t)
	if p := r.mustPut("a"); !p.New || p.Copies != 2 || f.has[p.Digest] != "a" {
		t.Errorf("%+v, %v", p, f.has)
	}
	if p := r.mustPut(""); !p.New || p.Copies != 2 {
		t.Errorf("an empty object: %+v", p)
	}
	f.down = true
	p := r.mustPut("b")
	if !p.New || p.Copies != 1 {
		t.Errorf("no other member: %+v", p)
	}
	f.down = false
	if p = r.mustPut("b"); p.New || p.Copies != 2 || f.has[p.Digest] != "b" {
		t.Errorf("put again: %+v", p)
	}
	r.sound()
}

// An object with a row and no file is fetched from another member, once for all who wait. Bytes with
// another hash are refused.
func TestRegain(t *testing.T) {
	t.Parallel()
	for doc, lie := range map[string]string{"true": "", "lie": "wrong", "short": "h", "long": "hello, world"} {
		r, f := member(t)
		big := strings.Repeat("0123456789abcdef", 3<<20/16)
		for _, body := range []string{"hello", big} {
			p := r.mustPut(body, typed("text/plain; charset=utf-8"))
			before, _ := r.e.Content().Held()
			r.lose(p.Digest)
			f.fetches, f.lies = 0, lie
			err := flow.Fan(t.Context(), 8, func(context.Context, int) error {
				r.want(p.Path, body)
				return nil
			})
			if after, _ := r.e.Content().Held(); err != nil || f.fetches != 1 || after != before {
				t.Errorf("%s: %v, %d fetches, room %+v, was %+v", doc, err, f.fetches, after, before)
			}
		}
		r.sound()
	}
}

// An object that no member has, whose members lie, or that is removed meanwhile, is a miss and
// leaves nothing.
func TestRegainFails(t *testing.T) {
	t.Parallel()
	r, f := member(t)
	p := r.mustPut("hello")
	r.lose(p.Digest)
	fails := func() {
		t.Helper()
		r.refused(p.Path, asset.ErrNotFound)
		if _, err := os.Stat(r.file(p.Digest)); !os.IsNotExist(err) {
			t.Errorf("its file: %v", err)
		}
	}
	f.down = true
	fails()
	f.down, f.has = false, map[b3.Digest]string{}
	fails()
	f.has[p.Digest] = "HELLO"
	fails()
	f.has[p.Digest] = "hello"
	f.before = func() {
		k, err := r.e.Keep(context.Background(), asset.Remove, []string{p.URL})
		if err != nil || len(k.Changed) != 1 {
			t.Errorf("removed meanwhile: %+v, %v", k, err)
		}
	}
	fails()
	left, err := os.ReadDir(filepath.Join(r.dir, "edge", "cas", "tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	r.sound()
}

// Verify fetches missing files, and keeps the row of an object while a member that may have it does
// not answer.
func TestVerifyRegains(t *testing.T) {
	t.Parallel()
	r, f := member(t)
	p := r.mustPut("hello")
	verify := func() (found []content.Finding, v content.Verified) {
		v, err := r.e.Verify(t.Context(), content.VerifyOptions{Fix: true, Found: func(f content.Finding) { found = append(found, f) }})
		if err != nil {
			t.Fatal(err)
		}
		return found, v
	}
	r.lose(p.Digest)
	f.down = true
	if found, v := verify(); len(found) != 1 || found[0].Done != content.Kept || v.Bad != 1 {
		t.Errorf("no member answers: %+v, %+v", found, v)
	}
	f.down = false
	if found, v := verify(); len(found) != 0 || v.Objects != 1 {
		t.Errorf("a member has it: %+v, %+v", found, v)
	}
	r.want(p.Path, "hello")
	r.lose(p.Digest)
	f.has = nil
	if found, _ := verify(); len(found) != 1 || found[0].Done != content.Dropped {
		t.Errorf("no member has it: %+v", found)
	}
	r.refused(p.Path, asset.ErrNotFound)
	r.sound()
}

// A shelf takes only the bytes of the hash, leaves room on the disk, and leaves nothing of a
// refused object. An engine that opens the store keeps what has a row and removes the rest.
func TestShelf(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	kept := r.mustPut("kept")
	r.stop()
	s := content.NewShelf(r.cfg, r.dir)
	if err := errors.Join(os.Remove(r.file(kept.Digest)), s.Prepare()); err != nil {
		t.Fatal(err)
	}
	other := b3.Sum([]byte("other"))
	for range 2 {
		for d, text := range map[b3.Digest]string{kept.Digest: "kept", other: "other", b3.Sum(nil): ""} {
			if err := s.Put(t.Context(), d, int64(len(text)), strings.NewReader(text)); err != nil {
				t.Errorf("%q: %v", text, err)
			}
		}
	}
	f, err := s.Open(other, 5)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(f); err != nil || string(text) != "other" || f.Close() != nil {
		t.Errorf("%q, %v", text, err)
	}
	var lie *asset.DigestError
	none := b3.Sum([]byte("none"))
	for _, text := range []string{"NONE", "non", "none.", ""} {
		if err := s.Put(t.Context(), none, 4, strings.NewReader(text)); !errors.As(err, &lie) {
			t.Errorf("%q: %v", text, err)
		}
	}
	half := io.MultiReader(bytes.NewReader([]byte("no")), broken{errDown})
	if err := s.Put(t.Context(), none, 4, half); !errors.Is(err, errDown) {
		t.Errorf("a body that breaks off: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(r.dir, "edge", "cas", "tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	r.open()
	r.start().want(kept.Path, "kept")
	if _, err := os.Stat(r.file(other)); !os.IsNotExist(err) {
		t.Errorf("a file without a row: %v", err)
	}
	r.sound()
}

// readFunc is a reader that calls a function.
type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// A member that becomes the leader while another one sends it an object keeps the object.
func TestShelfPutDuringElection(t *testing.T) {
	t.Parallel()
	r, f := member(t)
	kept := r.mustPut("kept")
	r.stop()
	f.has = nil
	s := content.NewShelf(r.cfg, r.dir)
	if err := errors.Join(os.Remove(r.file(kept.Digest)), s.Prepare()); err != nil {
		t.Fatal(err)
	}
	elected := readFunc(func([]byte) (int, error) {
		r.open()
		r.start()
		return 0, io.EOF
	})
	if err := s.Put(t.Context(), kept.Digest, 4, io.MultiReader(strings.NewReader("kept"), elected)); err != nil {
		t.Error(err)
	}
	r.want(kept.Path, "kept")
	r.sound()
}
