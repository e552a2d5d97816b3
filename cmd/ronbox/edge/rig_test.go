package edge

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"
	"go.uber.org/goleak"

	"ronbox/appliance/b3"
	"ronbox/cmd/ronbox/cli"
	"ronbox/cmd/ronbox/server"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
	"ronbox/engines/index/name"
	"ronbox/httpapi/client"
	edgeapi "ronbox/httpapi/wire/edge"
	indexapi "ronbox/httpapi/wire/index"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeNode is a node that keeps names and objects in memory.
type fakeNode struct {
	t       *testing.T
	mux     http.ServeMux
	mu      sync.Mutex        // a leaf
	names   map[string]string // manifests by key; guarded by mu, as the next two
	objects map[string][]byte
	pinned  map[string]bool
	fleet   map[string][]byte // objects of the other nodes
	// before, if not nil, is called before each request with its method and path. It answers the
	// request itself if it returns a status.
	before func(request string) (status int)
}

func newFakeNode(t *testing.T) *fakeNode {
	n := &fakeNode{t: t, names: map[string]string{}, objects: map[string][]byte{}, pinned: map[string]bool{}}
	n.mux.HandleFunc("GET /index/names/{key}", n.getName)
	n.mux.HandleFunc("PUT /index/names/{key}", n.putName)
	n.mux.HandleFunc("GET /index/names", n.listNames)
	n.mux.HandleFunc("GET /edge/assets/b3/{hex}", n.getObject)
	n.mux.HandleFunc("PUT /edge/objects", n.putObject)
	n.mux.HandleFunc("GET /edge/keys", n.listPins)
	n.mux.HandleFunc("POST /edge/keys/{action}", n.keep)
	return n
}

// RoundTrip answers a request without a network.
func (n *fakeNode) RoundTrip(q *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	if q.Body == nil {
		q.Body = http.NoBody
	}
	status := 0
	if n.before != nil {
		status = n.before(q.Method + " " + q.URL.Path)
	}
	if status != 0 {
		w.WriteHeader(status)
		return w.Result(), q.Body.Close()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mux.ServeHTTP(w, q)
	return w.Result(), q.Body.Close()
}

// once makes do run before the first request with this method and path, which reached reports.
func (n *fakeNode) once(request string, do func()) (reached *atomic.Bool) {
	reached = &atomic.Bool{}
	n.before = func(got string) int {
		if got == request && reached.CompareAndSwap(false, true) {
			do()
		}
		return 0
	}
	return reached
}

func (n *fakeNode) answer(w http.ResponseWriter, doc any) {
	if err := json.MarshalWrite(w, doc); err != nil {
		n.t.Error(err)
	}
}

func missing(w http.ResponseWriter) { problem(w, http.StatusNotFound, "not_found") }

func problem(w http.ResponseWriter, status int, reason string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, `{"reason":"`+reason+`"}`)
}

func (n *fakeNode) getName(w http.ResponseWriter, q *http.Request) {
	key := q.PathValue("key")
	if n.names[key] == "" {
		missing(w)
		return
	}
	n.answer(w, indexapi.NameRow{Key: key, Manifest: n.names[key]})
}

func (n *fakeNode) putName(w http.ResponseWriter, q *http.Request) {
	var in indexapi.NamePut
	if err := json.UnmarshalRead(q.Body, &in); err != nil {
		n.t.Error(err)
	}
	n.names[q.PathValue("key")] = in.Manifest
	n.getName(w, q)
}

func (n *fakeNode) listNames(w http.ResponseWriter, _ *http.Request) {
	list := indexapi.NameList{Names: []indexapi.NameRow{}}
	for _, key := range slices.Sorted(maps.Keys(n.names)) {
		list.Names = append(list.Names, indexapi.NameRow{Key: key, Manifest: n.names[key]})
	}
	n.answer(w, list)
}

func (n *fakeNode) getObject(w http.ResponseWriter, q *http.Request) {
	d := "b3:" + q.PathValue("hex")
	body, ok := n.objects[d]
	looks := q.Header.Get(near.HopHeader) == "" // at the other nodes, one of which is down
	switch {
	case ok && body == nil: // damaged
		delete(n.objects, d)
		problem(w, http.StatusServiceUnavailable, "corrupt")
		return
	case !ok && looks && n.fleet[d] != nil:
		body = n.fleet[d]
	case !ok && looks:
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	case !ok:
		missing(w)
		return
	}
	_, _ = w.Write(body)
}

func (n *fakeNode) putObject(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		n.t.Error(err)
	}
	d := b3.Sum(body).String()
	n.objects[d], n.pinned[d] = body, true
	n.answer(w, edgeapi.Object{B3: d})
}

func (n *fakeNode) listPins(w http.ResponseWriter, _ *http.Request) {
	list := edgeapi.StoredList{Keys: []edgeapi.StoredKey{}}
	for _, d := range slices.Sorted(maps.Keys(n.pinned)) {
		list.Keys = append(list.Keys, edgeapi.StoredKey{Key: d})
	}
	n.answer(w, list)
}

func (n *fakeNode) keep(w http.ResponseWriter, q *http.Request) {
	var in edgeapi.Keep
	if err := json.UnmarshalRead(q.Body, &in); err != nil {
		n.t.Error(err)
	}
	out := edgeapi.Kept{}
	pin := q.PathValue("action") == "pin"
	for _, d := range in.Keys {
		switch {
		case n.objects[d] == nil:
			out.Missing = append(out.Missing, d)
		case n.pinned[d] != pin:
			out.Changed = append(out.Changed, d)
			if n.pinned[d] = pin; !pin {
				delete(n.pinned, d)
			}
		}
	}
	n.answer(w, out)
}

// evict removes the objects that are not pinned.
func (n *fakeNode) evict() {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.objects, func(d string, _ []byte) bool { return !n.pinned[d] })
}

// live evicts, checks that each name has its manifest and all files of it, and returns these.
func (n *fakeNode) live() (objects map[string]bool) {
	n.t.Helper()
	n.evict()
	objects = map[string]bool{}
	for key, manifest := range n.names {
		objects[manifest] = true
		m, err := site.Parse(n.objects[manifest])
		if err != nil {
			n.t.Errorf("the manifest of %s: %v", key, err)
			continue
		}
		for i := range m.Len() {
			f := m.File(i)
			objects[f.Digest.String()] = true
			if n.objects[f.Digest.String()] == nil {
				n.t.Errorf("%s has lost its file %s", key, f.Path)
			}
		}
	}
	return objects
}

// sound checks also that nothing else is pinned.
func (n *fakeNode) sound() {
	n.t.Helper()
	live := n.live()
	for d, body := range n.objects {
		if !live[d] {
			n.t.Errorf("%.20q is pinned for no name", body)
		}
	}
}

// publisher returns the publisher of a folder with files that have these texts.
func (n *fakeNode) publisher(key string, texts ...string) *publisher {
	n.t.Helper()
	dir := n.t.TempDir()
	for _, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, text+".txt"), []byte(text), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	c, err := client.New(client.Options{URL: "http://node.test", Transport: n})
	if err != nil {
		n.t.Fatal(err)
	}
	k, err := name.ParseKey(key)
	if err != nil {
		n.t.Fatal(err)
	}
	a := app{cli.New(nil, io.Discard, &bytes.Buffer{}, server.Build{})}
	p, err := a.newPublisher(n.t.Context(), edgeapi.NewClient(c), dir, k)
	if err != nil {
		n.t.Fatal(err)
	}
	return p
}

// publish publishes a folder with files that have these texts.
func (n *fakeNode) publish(key string, texts ...string) published {
	n.t.Helper()
	p := n.publisher(key, texts...)
	if err := p.publish(n.t.Context()); err != nil {
		n.t.Error(err)
	}
	return p.out
}
