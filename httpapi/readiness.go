package httpapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/httpapi/wire"
)

// Readiness keys of a node that does not lead.
const (
	keyLeader     = "cluster.leader"     // no node leads, or it does not answer
	keyMembership = "cluster.membership" // the node is no member
	keyFollower   = "cluster.follower"   // of a request for the readiness of the leader only
)

// Report returns the readiness of the node. A node that does not lead is as ready as the node that
// leads, because it forwards every request: it asks that node, and waits for at most askWithin.
func (s *Server) Report(service, plane string) obs.Report { return s.report(service, plane, true) }

// report is Report. With mayAsk unset a node that does not lead asks nobody: the request is that of
// another one which takes this node for the leader.
func (s *Server) report(service, plane string, mayAsk bool) obs.Report {
	own := s.d.Board.Report(service, plane)
	if !s.standsBy() || service != "" && len(own.Services) == 0 {
		return own
	}
	if s.d.Cluster.Removed() {
		return unready(own, keyMembership, "removed from the cluster; see `ronbox cluster rejoin --wipe`, or erase it")
	}
	id, addr, known := s.d.Cluster.Leader()
	if !known || id == s.d.Cluster.Self() || !mayAsk {
		return unready(own, keyLeader, "this node knows no node that leads")
	}
	r, err := s.leader.report(s.gate.ctx, id, addr, readyQuery{service, plane})
	if err != nil {
		return unready(own, keyLeader, fmt.Sprintf("%s leads and does not answer: %v", id, err))
	}
	return r
}

// unready returns the report of a node that serves nothing because of one key. own names the
// services.
func unready(own obs.Report, key, cause string) obs.Report {
	out := obs.Report{
		Missing: []string{key}, Causes: map[string]string{key: cause}, RetryAfter: nodeRetry,
		Services: map[string]obs.ServiceReport{},
	}
	for name := range own.Services {
		out.Services[name] = obs.ServiceReport{Missing: []string{}}
	}
	return out
}

// Bounds of what a node that does not lead knows about the readiness of the leader.
const (
	askWithin  = 500 * time.Millisecond // for an answer
	freshFor   = time.Second            // an answer is used again
	standInFor = 3 * time.Second        // an answer is used in place of one that does not come
	askedMost  = 64                     // queries at once
)

// readyQuery is a query of /readyz: a service of this node or "", and a plane or "".
type readyQuery struct{ service, plane string }

// heard is an answer of the leader.
type heard struct {
	leader string
	at     time.Time
	report obs.Report
}

// leaderReadiness is the readiness of the node that leads, as it has answered.
type leaderReadiness struct {
	peer   http.RoundTripper
	flight *flow.Flight[readyQuery, string, obs.Report] // the fence is the id of the leader

	mu   sync.Mutex // a leaf
	last map[readyQuery]heard
}

func newLeaderReadiness(d *Deps) *leaderReadiness {
	if d.Cluster == nil {
		return nil
	}
	return &leaderReadiness{
		peer: d.Cluster.Peer(), last: map[readyQuery]heard{},
		flight: flow.NewFlight[readyQuery, string, obs.Report](d.Catalog, flow.FlightSpec{
			Service: serviceNode, Name: "leader_ready", Waiters: bypassInflight, Calls: askedMost,
		}),
	}
}

// report returns the readiness of the leader at addr. Concurrent callers share one request. The
// report is shared and must not be modified.
func (l *leaderReadiness) report(ctx context.Context, id, addr string, q readyQuery) (obs.Report, error) {
	if r, ok := l.heard(id, q, freshFor); ok {
		return r, nil
	}
	r, err := l.flight.Do(ctx, q, id, askWithin, func(ctx context.Context) (obs.Report, error) {
		r, err := l.ask(ctx, id, addr, q)
		if err == nil {
			l.mu.Lock()
			l.last[q] = heard{id, time.Now(), r}
			l.mu.Unlock()
		}
		return r, err
	})
	if err != nil {
		if r, ok := l.heard(id, q, standInFor); ok {
			return r, nil
		}
	}
	return r, err
}

// heard returns the last answer of the leader id, if it is not older than age.
func (l *leaderReadiness) heard(id string, q readyQuery, age time.Duration) (obs.Report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.last[q]
	return h.report, h.leader == id && time.Since(h.at) < age
}

// ask requests /readyz of the node id at addr.
func (l *leaderReadiness) ask(ctx context.Context, id, addr string, q readyQuery) (out obs.Report, err error) {
	query := url.Values{}
	for name, value := range map[string]string{"service": q.service, "plane": q.plane} {
		if value != "" {
			query.Set(name, value)
		}
	}
	at := url.URL{Scheme: "https", Host: addr, Path: patternReady, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return out, err
	}
	req.Header.Set(relayScheme, at.Scheme)
	resp, err := l.peer.RoundTrip(req)
	if err != nil {
		return out, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.Header.Get(relayRefused) != "":
		return out, errRemoved
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable:
		return out, fmt.Errorf("status %d", resp.StatusCode)
	}
	var body wire.Ready
	if err := json.UnmarshalRead(io.LimitReader(resp.Body, maxReady), &body); err != nil {
		return out, fmt.Errorf("its readiness: %w", err)
	}
	return readyReport(id, body), nil
}

// maxReady bounds the body of /readyz, bytes. It names each key of a node at most twice.
const maxReady = 256 << 10

// readyReport returns the report that another node has sent.
func readyReport(id string, body wire.Ready) obs.Report {
	out := obs.Report{
		Ready: body.Ready, WriteReady: body.WriteReady, ReadReady: body.ReadReady, Degraded: body.Degraded,
		Missing: slices.Clip(body.Missing), Causes: map[string]string{}, RetryAfter: body.RetryAfter,
		Services: make(map[string]obs.ServiceReport, len(body.Services)),
	}
	for _, key := range body.Missing {
		out.Causes[key] = "at the node that leads, " + id
	}
	for name, sr := range body.Services {
		out.Services[name] = obs.ServiceReport(sr)
	}
	return out
}
