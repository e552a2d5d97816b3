package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/systemd"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/checkup"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/cluster"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// clusterConfig gives a node a peer port that is free.
func clusterConfig(t *testing.T, cfg *config.Config) {
	t.Helper()
	cfg.Cluster.Bind = stayingAddr(t)
	cfg.Cluster.Heartbeat = unit.Duration(time.Second)
}

// lastPort is the port that stayingAddr has returned last. Each process begins elsewhere.
var lastPort atomic.Int64

// stayingAddr returns an address that nobody listens on. Its port is below those from which the
// system takes one for a connection, so that it stays free while other tests run.
func stayingAddr(t *testing.T) string {
	t.Helper()
	const first, count = 20_000, 12_000
	for range count {
		at := first + (int64(os.Getpid())*37+lastPort.Add(1))%count
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", at))
		if err == nil {
			must(t, l.Close())
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// lives runs the lives of a node in one process, one after the other.
type lives struct {
	*rig
	cfg   *config.Config
	clock clock.Options
	again *renewal
	ended int
	all   *[]*lives // of the nodes of its cluster
}

// live launches a node whose directory decides whether it is a member.
func live(t *testing.T, cfg *config.Config) *lives {
	t.Helper()
	return liveBy(t, cfg, clock.Options{})
}

// liveBy launches a node with a clock.
func liveBy(t *testing.T, cfg *config.Config, by clock.Options) *lives {
	t.Helper()
	l := &lives{cfg: cfg, clock: by, again: &renewal{}}
	l.all = &[]*lives{l}
	l.rig = launchWith(t, cfg, l.options(Options{}))
	return l
}

func (l *lives) options(o Options) Options {
	o.clustered, o.clock = true, l.clock
	o.again = func(kept []systemd.Socket, env ...string) error {
		l.again.kept, l.again.n = kept, l.again.n+1
		if l.member != nil { // exec would end its goroutines
			_ = l.member.Close()
		}
		return nil
	}
	return o
}

// next waits for the end of this life and begins the next one.
func (l *lives) next() {
	t := l.t
	t.Helper()
	l.ended++
	if code := l.end(); code != process.ExitClean || l.again.n != l.ended {
		t.Fatalf("exit %d, %d next lives\n%s", code, l.again.n, l.log)
	}
	l.rig = launchWith(t, l.cfg, l.options(l.again.next(t)))
}

// await waits as that of a rig does. Meanwhile a node of the cluster that has lost its office, as it
// may on a busy machine, goes on with its next life.
func (l *lives) await(what string, is func() bool) {
	l.t.Helper()
	l.rig.await(what, func() bool {
		for _, one := range *l.all {
			one.revive()
		}
		return is()
	})
}

// revive begins the next life of a node that has ended for it.
func (l *lives) revive() {
	select {
	case code := <-l.exit:
		if l.exit <- code; code == process.ExitClean && l.again.n > l.ended {
			l.next()
		}
	default:
	}
}

func (l *lives) cluster() clusterapi.Client { return clusterapi.NewClient(l.socket().Client) }

// status returns the status of the cluster, as this node tells it.
func (l *lives) status() (clusterapi.ClusterStatus, error) {
	return l.clusterAdmin().Status(l.t.Context())
}

// self returns the id of this member.
func (l *lives) self() string { return l.part().Answering().Self() }

// found returns a finding of the doctor about this member, or none before it is one.
func (l *lives) found(check string) host.Finding {
	if m := l.part(); m != nil {
		for _, f := range m.Findings() {
			if f.Check == check {
				return f
			}
		}
	}
	return host.Finding{Level: host.Bad, Seen: "not found"}
}

// freshLines lets what this member asks next of others come over new connections.
func (l *lives) freshLines() {
	l.part().Answering().Peer().(interface{ CloseIdleConnections() }).CloseIdleConnections()
}

// leads waits until the node leads and serves.
func (l *lives) leads() {
	l.t.Helper()
	l.await("its office", func() bool {
		select {
		case <-l.up:
			return true
		default:
			return false
		}
	})
}

// A node becomes a cluster of one and a node alone again, with its data and on its sockets. A second
// one joins it, forwards to it, and leaves.
func TestClusterOfOneAndBack(t *testing.T) {
	t.Parallel()
	cfg, res := devConfig(t)
	clusterConfig(t, cfg)
	a := live(t, cfg)
	a.begin()
	addr := a.Addr()
	made, err := a.cluster().InitCluster(t.Context(), clusterapi.InitRequest{})
	must(t, err)
	a.next()
	a.leads()
	if a.Addr() != addr {
		t.Errorf("it serves on %s, was %s", a.Addr(), addr)
	}
	if _, err := a.cluster().InitCluster(t.Context(), clusterapi.InitRequest{}); problem(t, err).Status != 409 {
		t.Errorf("a second init: %v", err)
	}
	status, err := a.cluster().ClusterStatus(t.Context())
	must(t, err)
	if status.Leader != made.ID || len(status.Members) != 1 {
		t.Errorf("status %+v", status)
	}

	b := join(t, a)
	b.until("standby", func(p flow.Phase) bool { return p == flow.Standby })
	b.await("the admission", func() bool { return !exists(b.cfg.Path("cluster", "join.json")) })
	v := a.services.Registry().Head().Head.Version
	token, err := os.ReadFile(res.TokenFile)
	must(t, err)
	b.await("a leader", func() bool { return b.server.Report("", "").Ready })
	ask := func(path string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+b.Addr()+path, nil)
		must(t, err)
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
		resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
		must(t, err)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := ask("/registry/head"); code != http.StatusOK || v != 1 {
		t.Errorf("a forwarded read: %d", code)
	}
	for _, path := range []string{member.PathFile, member.PathBundle, member.PathHello} {
		if code := ask(path); code != http.StatusNotFound {
			t.Errorf("a client gets %d for %s of the peer port", code, path)
		}
	}
	if st := b.Status(); st.Cluster == nil || st.Cluster.Role != "follower" || st.Cluster.Leader != made.ID {
		t.Errorf("status of the follower: %+v", st.Cluster)
	}
	if f := checkup.Readiness(b.server.Report("", "")); f.Level != host.OK {
		t.Errorf("the doctor finds %+v", f)
	}
	a.board.Set(ownService, "test", errors.New("stalled"))
	b.await("the readiness of the leader", func() bool { return ask("/readyz") == http.StatusServiceUnavailable })
	if f := checkup.Readiness(b.server.Report("", "")); f.Level != host.Bad || !strings.Contains(f.Seen, "node.test") {
		t.Errorf("the doctor finds %+v of a leader that is not ready", f)
	}
	_, err = b.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{})
	must(t, err)
	if code := b.end(); code != process.ExitClean {
		t.Errorf("exit %d after it left\n%s", code, b.log)
	}
	there, err := client.New(client.Options{
		URL:       "https://" + cfg.Cluster.Bind,
		Transport: httpapi.OwnRequests(b.part().Answering().Peer()),
	})
	must(t, err)
	_, err = clusterapi.NewClient(there).ClusterStatus(t.Context())
	if p := problem(t, err); p.Status != http.StatusForbidden {
		t.Errorf("a request of a node that has left: %v", err)
	}

	_, err = a.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{Last: true})
	must(t, err)
	a.next()
	a.begin()
	if a.member != nil || exists(cfg.Path("cluster")) || exists(cfg.Path("raft")) {
		t.Error("it is a member still")
	}
	a.halt()
}

// leadsAlone launches a node and makes it a cluster of one. It skips a test under the race detector.
func leadsAlone(t *testing.T, prepare ...func(*config.Config)) *lives {
	t.Helper()
	if hosttest.UnderRace() {
		t.Skip("it waits for real heartbeats: `make test` runs it")
	}
	cfg, _ := devConfig(t)
	clusterConfig(t, cfg)
	for _, f := range prepare {
		f(cfg)
	}
	a := live(t, cfg)
	a.begin()
	_, err := a.cluster().InitCluster(t.Context(), clusterapi.InitRequest{})
	must(t, err)
	a.next()
	a.leads()
	return a
}

// votes waits until b has a vote. It is the second member of the cluster of a.
func (b *lives) votes(t *testing.T, a *lives) {
	t.Helper()
	b.await("its vote", func() bool {
		s, err := a.status()
		return err == nil && len(s.Members) == 2 && s.Members[1].Role == string(cluster.RoleVoter)
	})
}

// join launches a node that joins the cluster of a.
func join(t *testing.T, a *lives) *lives {
	t.Helper()
	return a.with(live(t, joined(t, a)))
}

// with adds a node to the cluster of a.
func (a *lives) with(l *lives) *lives {
	*a.all = append(*a.all, l)
	l.all = a.all
	return l
}

// joined returns the configuration of a node that has joined the cluster of a and was not served.
func joined(t *testing.T, a *lives) *config.Config {
	t.Helper()
	var token clusterapi.JoinToken
	a.await("a token", func() (made bool) { // the leader may lose its office on a busy machine
		var err error
		token, err = a.cluster().MintClusterToken(t.Context(), clusterapi.JoinTokenRequest{})
		return err == nil
	})
	return joinedBy(t, token)
}

// joinedBy returns the configuration of a node that has joined by a token and was not served.
func joinedBy(t *testing.T, token clusterapi.JoinToken) *config.Config {
	t.Helper()
	cfg := newConfig(t)
	clusterConfig(t, cfg)
	must(t, os.MkdirAll(cfg.Node.DataDir, 0o700))
	dir := member.At(cfg.Node.DataDir)
	o := member.JoinOptions{URL: token.URL, Token: token.Token, Advertise: cfg.Cluster.Address()}
	if _, err := dir.Join(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Join(t.Context(), o); errors.Is(err, member.ErrToken) {
		t.Errorf("joined again: %v", err)
	}
	return cfg
}

// A member whose clock goes wrong is named by all, should not lead, and its own reading follows the
// clocks of the other two.
func TestClockOfAMember(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	var shift atomic.Int64
	b := join(t, a)
	c := a.with(liveBy(t, joined(t, a), clock.Options{Read: turned(&shift)}))
	status := func() clusterapi.ClusterStatus {
		s, err := a.status()
		if err != nil {
			return clusterapi.ClusterStatus{} // between two lives
		}
		return s
	}
	a.await("three healthy voters", func() bool { s := status(); return s.VotersHealthy == 3 && s.FailureTolerance == 1 })
	const off = 30 * 24 * time.Hour
	shift.Store(int64(off))
	a.await("the leader to name the clock", func() bool {
		s := status()
		i := slices.IndexFunc(s.Members, func(m clusterapi.Member) bool { return !m.Healthy })
		return i >= 0 && s.Members[i].ID == c.self() && s.Members[i].Unfit != "" &&
			(time.Duration(s.Members[i].SkewMS)*time.Millisecond-off).Abs() < cluster.MostSkew && s.FailureTolerance == 1
	})
	a.await("the finding of the member", func() bool {
		s := status()
		return strings.Contains(memberOf(&s, c.self()).Unfit, "clock") && time.Until(c.now()).Abs() < time.Second
	})
	shift.Store(0)
	a.await("the clock to be right again", func() bool { return status().VotersHealthy == 3 })
	for _, l := range []*lives{a, b, c} { // at once: no two that remain need a leader
		l.stop()
	}
	for _, l := range []*lives{a, b, c} {
		l.halt()
	}
}

// A member whose cluster.bind has changed is reached at its new address, whether it led or not.
func TestAddressOfAMember(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	all := []*lives{a, join(t, a), join(t, a)}
	healthy := func() bool {
		for _, l := range all {
			s, err := l.status()
			at := slices.IndexFunc(s.Members, func(one clusterapi.Member) bool { return one.Address == l.cfg.Cluster.Bind })
			if err != nil || at < 0 || l.found("cluster_address").Level != host.OK || int(s.VotersHealthy) != len(all) {
				return false
			}
		}
		return true
	}
	a.await("three healthy voters", func() bool {
		s, err := a.status()
		return err == nil && s.VotersHealthy == 3
	})
	for _, i := range []int{2, 0} { // a follower, then the leader
		l := all[i]
		l.halt()
		clusterConfig(t, l.cfg)
		all[i] = a.with(live(t, l.cfg))
		all[i].await("the new address", healthy)
	}
	for _, l := range all {
		l.stop()
	}
	for _, l := range all {
		l.halt()
	}
}

// A member whose secrets are not those of the leader does not stand for election. It says so, and so
// does the leader.
func TestOtherSecretsAreTold(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	other := joined(t, a)
	key, logKey := other.Path(config.SecretName), other.Path(config.LogKeyName)
	right, err := os.ReadFile(key)
	must(t, err)
	must(t, os.WriteFile(key, []byte(strings.Repeat("5e", 32)+"\n"), 0o600))
	rightLog, err := os.ReadFile(logKey)
	must(t, err)
	must(t, os.Remove(logKey))

	b := live(t, other)
	b.await("the word of the leader", func() bool {
		f := b.found("cluster_keys")
		return strings.HasPrefix(f.Seen, "log.key, node.key: ") && f.Level == host.Bad && f.Advice != ""
	})
	b.await("the admission", func() bool { // without a vote yet: the leader needs nobody
		s, err := a.status()
		return err == nil && len(s.Members) == 2 && s.Members[1].Lag == 0
	})
	s, err := b.cluster().ClusterStatus(t.Context())
	must(t, err)
	one := s.Members[1]
	if one.Healthy || !strings.Contains(one.Note, config.SecretName) || !s.Members[0].Healthy || s.Members[0].Note != "" {
		t.Errorf("status %+v", s)
	}
	fitness := func(doc, want string) {
		t.Helper()
		a.await(doc, func() bool {
			s, err := a.status()
			why := memberOf(&s, b.self()).Unfit
			return err == nil && (why == "") == (want == "") && strings.Contains(why, want)
		})
	}
	fitness("a node key that the file does not know", "node secret")
	must(t, os.WriteFile(key, right, 0o600))
	fitness("the node key of the leader", "")
	if f := b.found("cluster_keys"); !strings.HasPrefix(f.Seen, "log.key: ") {
		t.Errorf("the doctor finds %+v", f)
	}
	must(t, os.WriteFile(logKey, rightLog, 0o600))
	if f := b.found("cluster_keys"); f.Level != host.OK {
		t.Errorf("the doctor finds %+v", f)
	}
	b.halt()
	a.halt()
}
