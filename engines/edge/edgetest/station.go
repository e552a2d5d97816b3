package edgetest

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
	"ronbox/engines/fleet"
)

// Station is another node of a fleet: a server with objects. Answer makes it a bad one.
type Station struct {
	*httptest.Server
	fleet.Node
	Asked  atomic.Int64 // GETs
	Heads  atomic.Int64
	Answer http.HandlerFunc // nil: Serve

	mu      sync.Mutex           // a leaf
	objects map[b3.Digest]string // guarded by mu
}

// ServeHTTP counts a request and answers it.
func (s *Station) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodHead {
		s.Heads.Add(1)
	} else {
		s.Asked.Add(1)
	}
	if s.Answer != nil {
		s.Answer(w, q)
		return
	}
	s.Serve(w, q)
}

// Serve answers from the objects, to a node that sends the hop header only.
func (s *Station) Serve(w http.ResponseWriter, q *http.Request) {
	d, err := b3.Parse("b3:" + strings.TrimPrefix(q.URL.Path, "/edge/assets/b3/"))
	s.mu.Lock()
	body, ok := s.objects[d]
	s.mu.Unlock()
	if err != nil || !ok || q.Header.Get(near.HopHeader) == "" {
		http.Error(w, "not here", http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", `"`+d.String()+`"`)
	http.ServeContent(w, q, "object.txt", time.Time{}, strings.NewReader(body))
}

// Set adds an object.
func (s *Station) Set(d b3.Digest, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[d] = body
}

// Unset removes an object.
func (s *Station) Unset(d b3.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, d)
}

// NewStation starts a node with objects.
func NewStation(t testing.TB, name string, bodies ...string) *Station {
	t.Helper()
	s := &Station{objects: map[b3.Digest]string{}}
	for _, body := range bodies {
		s.objects[b3.Sum([]byte(body))] = body
	}
	s.Server = httptest.NewServer(s)
	s.Node = fleet.Node{
		ID: "node/" + name, Endpoint: s.URL, Region: self.Region, Identity: "id-" + name,
		Services: []string{fleet.ServiceEdge},
	}
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// Adds makes a station hold objects and returns the manifest of a site with them.
func (s *Station) Adds(t testing.TB, bodies ...string) b3.Digest {
	t.Helper()
	var files []site.File
	for i, body := range bodies {
		d := b3.Sum([]byte(body))
		s.Set(d, body)
		path := fmt.Sprintf("f%03d.txt", i)
		files = append(files, site.File{Path: path, Digest: d, Size: int64(len(body)), Type: "text/plain"})
	}
	return s.Lists(t, files...)
}

// Lists makes a station hold the manifest of files.
func (s *Station) Lists(t testing.TB, files ...site.File) b3.Digest {
	t.Helper()
	raw, err := site.Encode(files)
	if err != nil {
		t.Fatal(err)
	}
	s.Set(b3.Sum(raw), string(raw))
	return b3.Sum(raw)
}

// self is the item of the node under test.
var self = fleet.Node{ID: "node/self", Endpoint: "http://127.0.0.1:1", Region: "r1", Identity: "id-self"}

// View returns a version of the registry with the node under test and stations.
func View(version uint64, all ...*Station) *fleet.View {
	v := &fleet.View{Version: version, Self: self.ID}
	for _, s := range all {
		v.Nodes = append(v.Nodes, s.Node)
	}
	v.Nodes = append(v.Nodes, self) // ids of stations sort before
	return v
}

// Places returns a version in which contents are placed everywhere.
func Places(v *fleet.View, contents ...string) *fleet.View {
	for i, c := range contents {
		v.Placements = append(v.Placements, fleet.Placement{ID: fmt.Sprintf("placement/p%d", i), Content: c})
	}
	return v
}

// Loud returns a body of size bytes.
func Loud(seed string, size int) string {
	return string(bytes.Repeat([]byte(seed+"\n"), size/(len(seed)+1)+1)[:size])
}

// Numbered returns n texts that begin with prefix.
func Numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i))
	}
	return out
}
