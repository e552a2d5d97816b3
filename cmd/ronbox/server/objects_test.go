package server

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/cluster/member"
	"ronbox/engines/edge"
	"ronbox/engines/edge/asset"
	clusterapi "ronbox/httpapi/wire/cluster"
	edgeapi "ronbox/httpapi/wire/edge"
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
func shelved(t *testing.T) (*objects, http.Handler) {
	t.Helper()
	o := &objects{
		shelf:  edge.NewShelf(edge.DefaultConfig(), t.TempDir()),
		log:    hclog.NewNullLogger(),
		sender: func(*http.Request) string { return "leader" },
		leads:  func() bool { return false },
	}
	must(t, o.prepare())
	mux := http.NewServeMux()
	o.register(mux)
	return o, mux
}

// asking returns the objects of a leader, which asks others.
func asking(others peers, addrs ...string) *objects {
	return &objects{
		log:    hclog.NewNullLogger(),
		client: &peer.Client{Transport: others},
		others: func() ([]string, bool) { return addrs, true },
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
		silent.others = func() ([]string, bool) { return []string{"none"}, false }
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
	sender := o.sender
	o.sender = func(*http.Request) string { return "" }
	want("a stranger writes", 403, http.MethodPut, name, "hello")
	want("a stranger reads", 403, http.MethodGet, name+"?size=5", "")
	o.sender, o.leads = sender, func() bool { return true }
	want("to the leader", 409, http.MethodPut, name, "hello")
	o.leads = func() bool { return false }
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

// getObject reads an object over the public port.
func (r *rig) getObject(path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.Addr()+path, nil)
	must(r.t, err)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	must(r.t, err)
	text, err := io.ReadAll(resp.Body)
	must(r.t, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode, string(text)
}

// fileOf returns the path of the file of an object.
func (r *rig) fileOf(d b3.Digest) string {
	name := hex.EncodeToString(d[:])
	return filepath.Join(r.cfg.Node.DataDir, "edge", "cas", "b3", name[:2], name[2:])
}

// An object that was put is on two members once the answer has come. The leader fetches a file that
// it has lost, and the other member serves the object when it leads.
func TestObjectsSurviveTheLeader(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	put := func(body string) edgeapi.Object {
		t.Helper()
		c, _ := a.putToken()
		o, err := c.PutObject(t.Context(), edgeapi.ObjectPut{
			Body: strings.NewReader(body), Size: int64(len(body)), Type: "text/plain; charset=utf-8",
		})
		must(t, err)
		return o
	}
	if o := put("of one"); !o.New || o.Copies != 1 {
		t.Errorf("a cluster of one: %+v", o)
	}
	b := join(t, a)
	b.votes(t, a)
	big := strings.Repeat("0123456789abcdef", 3<<20/16)
	for _, text := range []string{"hello", "", big, "of one"} {
		d := b3.Sum([]byte(text))
		if o := put(text); o.Copies != 2 || o.B3 != d.String() {
			t.Errorf("%+v", o)
		}
		kept, err := os.ReadFile(b.fileOf(d))
		if must(t, err); !bytes.Equal(kept, []byte(text)) {
			t.Errorf("the other member has %.40q, want %.40q", kept, text)
		}
		must(t, os.Remove(a.fileOf(d)))
		a.edge().Purge()
		path := "/edge/assets/b3/" + hex.EncodeToString(d[:])
		if code, got := a.getObject(path); code != http.StatusOK || got != text {
			t.Errorf("the leader has lost it: %d, %d bytes", code, len(got))
		}
	}
	id, err := member.At(a.cfg.Node.DataDir).Identity()
	must(t, err)
	_, err = a.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{})
	must(t, err)
	if code := a.end(); code != process.ExitClean {
		t.Errorf("exit %d\n%s", code, a.log)
	}
	must(t, a.member.Close()) // the process would have ended
	b.leads()
	for _, text := range []string{"hello", "", big, "of one"} {
		d := b3.Sum([]byte(text))
		if code, got := b.getObject("/edge/assets/b3/" + hex.EncodeToString(d[:])); code != http.StatusOK || got != text {
			t.Errorf("the next leader: %d, %d bytes", code, len(got))
		}
	}

	client := id.Client()
	defer client.CloseIdleConnections()
	d := b3.Sum([]byte("stranger"))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, urlOfObject(b.cfg.Cluster.Address(), d),
		strings.NewReader("stranger"))
	must(t, err)
	resp, err := client.Do(req)
	must(t, err)
	if must(t, resp.Body.Close()); resp.StatusCode != http.StatusForbidden || exists(b.fileOf(d)) {
		t.Errorf("a node that has left writes: %d", resp.StatusCode)
	}
	b.halt()
}
