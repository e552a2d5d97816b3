package edge

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/peer"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
)

// peers answers the requests to peer ports, by address.
type peers map[string]http.Handler

func (p peers) RoundTrip(r *http.Request) (*http.Response, error) {
	defer func() {
		if r.Body != nil {
			_ = r.Body.Close()
		}
	}()
	h := p[r.URL.Host]
	if h == nil { // it hangs
		<-r.Context().Done()
		return nil, context.Cause(r.Context())
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result(), nil
}

// shelved returns the objects of a member with a content store, and its handler.
func shelved(t *testing.T) (*Objects, http.Handler) {
	t.Helper()
	shelf := content.NewShelf(config.DefaultConfig(), t.TempDir())
	if err := shelf.Prepare(); err != nil {
		t.Fatal(err)
	}
	o := &Objects{
		Shelf:  shelf,
		Log:    hclog.NewNullLogger(),
		Sender: func(*http.Request) string { return "leader" },
		Leads:  func() bool { return false },
	}
	mux := http.NewServeMux()
	o.Register(mux)
	return o, mux
}

// asking returns the objects of a leader, which asks others.
func asking(others peers, addrs ...string) *Objects {
	return &Objects{
		Log:    hclog.NewNullLogger(),
		Client: &peer.Client{Transport: others},
		Others: func() ([]string, bool) { return addrs, true },
	}
}

func opens(text string) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
}

// wants returns a function for Fetch that takes only a text.
func wants(text string) func(io.Reader) error {
	return func(r io.Reader) error {
		got, err := io.ReadAll(r)
		if err == nil && string(got) != text {
			err = errors.New("other bytes")
		}
		return err
	}
}

// An object goes to all members that take it soon, and comes from the first that has it. A member
// that hangs leaves time for the next; if all hang, the answer comes within the bound.
func TestObjectsOfMembers(t *testing.T) {
	_, has := shelved(t)
	none := http.NotFoundHandler()
	liar := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "lie") })
	full := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInsufficientStorage)
	})
	synctest.Test(t, func(t *testing.T) {
		all := peers{"has": has, "none": none, "liar": liar, "full": full}
		for _, text := range []string{"hello", ""} {
			d, size := b3.Sum([]byte(text)), int64(len(text))
			for _, addrs := range [][]string{{"has"}, {"hangs", "none", "full", "has"}} {
				if n := asking(all, addrs...).Copy(t.Context(), d, size, opens(text)); n != 1 {
					t.Errorf("%q to %v: %d copies", text, addrs, n)
				}
			}
			for _, addrs := range [][]string{{"has"}, {"hangs", "none", "full", "liar", "has"}} {
				if err := asking(all, addrs...).Fetch(t.Context(), d, size, wants(text)); err != nil {
					t.Errorf("%q from %v: %v", text, addrs, err)
				}
			}
		}
		d := b3.Sum([]byte("hello"))
		begun := time.Now()
		if n := asking(all, "hangs", "has", "has", "full").Copy(t.Context(), d, 5, opens("hello")); n != 2 {
			t.Errorf("%d copies on two members that take it", n)
		}
		if took := time.Since(begun); took > moveGrace {
			t.Errorf("a member that hangs delays it by %v", took)
		}
		for _, addrs := range [][]string{nil, {"none"}, {"full", "none"}, {"hangs"}, {"hangs", "hangs"}} {
			begun := time.Now()
			if n := asking(all, addrs...).Copy(t.Context(), d, 5, opens("hello")); n != 0 {
				t.Errorf("to %v: %d copies", addrs, n)
			}
			if took := time.Since(begun); took > moveWithin {
				t.Errorf("to %v: it took %v", addrs, took)
			}
		}
		for _, addrs := range [][]string{nil, {"none"}, {"none", "none"}} {
			if err := asking(all, addrs...).Fetch(t.Context(), d, 5, wants("hello")); !errors.Is(err, asset.ErrNotFound) {
				t.Errorf("from %v: %v", addrs, err)
			}
		}
		for _, addrs := range [][]string{{"hangs", "none"}, {"liar"}, {"full"}} {
			err := asking(all, addrs...).Fetch(t.Context(), d, 5, wants("hello"))
			if err == nil || errors.Is(err, asset.ErrNotFound) {
				t.Errorf("from %v: %v", addrs, err)
			}
		}
		silent := asking(all)
		silent.Others = func() ([]string, bool) { return []string{"none"}, false }
		if err := silent.Fetch(t.Context(), d, 5, wants("hello")); err == nil || errors.Is(err, asset.ErrNotFound) {
			t.Errorf("a member that does not answer may have it: %v", err)
		}
	})
}

// Only members write, only to a member that does not lead, and only the bytes of the hash.
func TestObjectsRefused(t *testing.T) {
	o, h := shelved(t)
	d := b3.Sum([]byte("hello"))
	name := pathObjects + hex.EncodeToString(d[:])
	ask := func(method, path, body string) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
		return w.Code
	}
	want := func(doc string, code int, method, path, body string) {
		t.Helper()
		if got := ask(method, path, body); got != code {
			t.Errorf("%s: %d, want %d", doc, got, code)
		}
	}
	want("absent", 404, http.MethodGet, name+"?size=5", "")
	want("other bytes", 422, http.MethodPut, name, "HELLO")
	want("longer", 422, http.MethodPut, name, "hello!")
	want("no hash", 400, http.MethodPut, pathObjects+"xyz", "hello")
	sender := o.Sender
	o.Sender = func(*http.Request) string { return "" }
	want("a stranger writes", 403, http.MethodPut, name, "hello")
	want("a stranger reads", 403, http.MethodGet, name+"?size=5", "")
	o.Sender, o.Leads = sender, func() bool { return true }
	want("to the leader", 409, http.MethodPut, name, "hello")
	o.Leads = func() bool { return false }
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPut, name, strings.NewReader("hello"))
	r.ContentLength = -1
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 400 {
		t.Errorf("without a length: %d", w.Code)
	}
	want("nothing was stored", 404, http.MethodGet, name+"?size=5", "")
	want("the bytes", 201, http.MethodPut, name, "hello")
	want("again", 201, http.MethodPut, name, "hello")
	want("read", 200, http.MethodGet, name+"?size=5", "")
	want("another size", 404, http.MethodGet, name+"?size=4", "")
	want("no size", 400, http.MethodGet, name, "")
}
