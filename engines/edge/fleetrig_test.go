package edge

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tables"
	"ronbox/engines/fleet"
)

// station is another node of a fleet: a server with objects. hang and lie make it a bad one.
type station struct {
	*httptest.Server
	fleet.Node
	mu      sync.Mutex
	objects map[b3.Digest]string // guarded by mu
	asked   atomic.Int64         // GETs
	heads   atomic.Int64
	answer  http.HandlerFunc // nil: from objects
}

func (s *station) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if q.Method == http.MethodHead {
		s.heads.Add(1)
	} else {
		s.asked.Add(1)
	}
	if s.answer != nil {
		s.answer(w, q)
		return
	}
	s.serve(w, q)
}

// serve answers from the objects, to a node that sends the hop header only.
func (s *station) serve(w http.ResponseWriter, q *http.Request) {
	d, err := b3.Parse("b3:" + strings.TrimPrefix(q.URL.Path, "/edge/assets/b3/"))
	s.mu.Lock()
	body, ok := s.objects[d]
	s.mu.Unlock()
	if err != nil || !ok || q.Header.Get(HopHeader) == "" {
		http.Error(w, "not here", http.StatusNotFound)
		return
	}
	w.Header().Set("ETag", `"`+d.String()+`"`)
	http.ServeContent(w, q, "object.txt", time.Time{}, strings.NewReader(body))
}

func (s *station) set(d b3.Digest, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[d] = body
}

func (s *station) unset(d b3.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, d)
}

// fails reports whether a failure counts against a node.
func (n *neighbor) fails() bool { return n.breaker.State() != flow.BreakerClosed }

// newStation starts a node with objects.
func newStation(t testing.TB, name string, bodies ...string) *station {
	t.Helper()
	s := &station{objects: map[b3.Digest]string{}}
	for _, body := range bodies {
		s.objects[b3.Sum([]byte(body))] = body
	}
	s.Server = httptest.NewServer(s)
	s.Node = fleet.Node{
		ID: "node/" + name, Endpoint: s.URL, Region: "r1", Identity: "id-" + name, Services: []string{fleet.ServiceEdge},
	}
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return s
}

// inFleet lets a rig be a node of a fleet, over plain HTTP on this host.
func inFleet(more ...func(*rig)) func(*rig) {
	return func(r *rig) {
		r.cfg.Ingress.TimeoutSecs = 30 // for a busy machine
		r.fleet = &FleetConfig{}
		for _, f := range more {
			f(r)
		}
	}
}

// plainRule is the rule of a node whose own endpoint is plain HTTP.
func plainRule(*fleet.View) upstream.NodeRule { return upstream.NodeRule{Plain: true} }

// self is the item of the node under test.
var self = fleet.Node{ID: "node/self", Endpoint: "http://127.0.0.1:1", Region: "r1", Identity: "id-self"}

// view returns a version of the registry with the node under test and stations.
func view(version uint64, all ...*station) *fleet.View {
	v := &fleet.View{Version: version, Self: self.ID}
	for _, s := range all {
		v.Nodes = append(v.Nodes, s.Node)
	}
	v.Nodes = append(v.Nodes, self) // ids of stations sort before
	return v
}

// setFleet makes v the view of the node. Like the node, it sets the pool of lines first.
func (r *rig) setFleet(v *fleet.View) { r.e.SetFleet(r.pool.Set(v)) }

// fetch fetches an object and returns its bytes.
func (r *rig) fetch(d b3.Digest, near Near) (string, error) {
	if err := r.e.Fetch(context.Background(), d, near); err != nil {
		return "", err
	}
	body, _, err := r.read(asset.PathOf(d))
	return body, err
}

// stores installs an object under a pseudo URL, as a put does.
func (r *rig) stores(body string) b3.Digest {
	r.t.Helper()
	temp, err := r.e.content.Dir().Create()
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := temp.Write([]byte(body)); err != nil {
		r.t.Fatal(err)
	}
	d, size := temp.Sum()
	if err := temp.Seal(); err != nil {
		r.t.Fatal(err)
	}
	row := tables.Stored{URL: objectURL(d), Path: asset.PathOf(d), Digest: d, Size: size, Type: "text/plain"}
	if _, err := r.e.content.Install(context.Background(), row, temp); err != nil {
		r.t.Fatal(err)
	}
	return d
}

// barrier waits until the writer has finished what was sent before.
func (r *rig) barrier() error {
	_, err := r.e.keep(context.Background(), asset.Unpin, []string{"none"})
	return err
}

// written waits until the writer has counted what it has committed.
func (r *rig) written() {
	r.t.Helper()
	if err := r.barrier(); err != nil {
		r.t.Fatal(err)
	}
}

// loud returns a body of size bytes.
func loud(seed string, size int) string {
	return string(bytes.Repeat([]byte(seed+"\n"), size/(len(seed)+1)+1)[:size])
}

func names(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%02d", prefix, i))
	}
	return out
}

// fleetNames is an index.
type fleetNames struct {
	providers []string

	mu        sync.Mutex
	down      bool                // guarded by mu, as are the next two
	named     map[string]Named    // by name
	announced map[b3.Digest]int64 // times
}

func newFleetNames(providers ...string) *fleetNames {
	return &fleetNames{providers: providers, named: map[string]Named{}, announced: map[b3.Digest]int64{}}
}

// set changes what a name stands for.
func (f *fleetNames) set(name string, n Named) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.named[name] = n
}

// fail makes every later lookup fail.
func (f *fleetNames) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.down = true
}

func (f *fleetNames) count(d b3.Digest) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.announced[d]
}

func (f *fleetNames) Manifest(_ context.Context, name string, _ netip.Addr) (Named, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.named[name]
	if !ok || f.down {
		return Named{}, asset.ErrNotFound
	}
	return n, nil
}

func (f *fleetNames) Providers(context.Context, b3.Digest) ([]string, error) { return f.providers, nil }

func (f *fleetNames) Announce(_ context.Context, all []b3.Digest, _ time.Duration) ([]b3.Digest, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range all {
		f.announced[d]++
	}
	return all, nil
}

func (f *fleetNames) Withdraw(_ context.Context, all []b3.Digest) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range all {
		delete(f.announced, d)
	}
	return nil
}
