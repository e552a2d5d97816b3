package server

import (
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
	clusterapi "ronbox/httpapi/wire/cluster"
	nodeapi "ronbox/httpapi/wire/node"
)

// The leader leaves: it stops, and the other member goes on. The node that has left keeps its
// certificate, but may forward nothing, not even for root.
func TestLeaderLeaves(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	b := join(t, a)
	b.votes(t, a)
	id, err := member.At(a.cfg.Node.DataDir).Identity()
	must(t, err)

	key := b.cfg.Path(config.SecretName)
	must(t, os.Rename(key, key+".away"))
	a.await("the word of a member without the secret of the tokens", func() bool {
		s, err := a.status()
		return err == nil && strings.Contains(memberOf(&s, b.self()).Unfit, config.SecretName)
	})
	must(t, os.Rename(key+".away", key))
	a.await("its fitness", func() bool {
		s, err := a.status()
		return err == nil && memberOf(&s, b.self()).Unfit == ""
	})

	var gone clusterapi.Removed
	a.await("the leave", func() bool {
		gone, err = a.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{})
		return err == nil
	})
	if code := a.end(); code != process.ExitClean || a.again.n != a.ended || gone.ID != id.ServerID() {
		t.Errorf("exit %d, %d next lives, %s left\n%s", code, a.again.n, gone.ID, a.log)
	}
	must(t, a.member.Close()) // the process would have ended
	b.leads()

	peers := id.Client()
	defer peers.CloseIdleConnections()
	c, err := client.New(client.Options{
		URL: "https://" + b.cfg.Cluster.Address(), Transport: httpapi.OwnRequests(peers.Transport),
	})
	must(t, err)
	if _, err := clusterapi.NewClient(c).ClusterStatus(t.Context()); problem(t, err).Status != http.StatusForbidden {
		t.Errorf("a node that has left asks as root: %v", err)
	}
	b.halt()
}

// An address that no other node can reach is refused, with the way to name another one.
func TestInitAddress(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	cfg.Cluster.Bind = "0.0.0.0:7946"
	a := live(t, cfg)
	a.begin()
	_, err := a.cluster().InitCluster(t.Context(), clusterapi.InitRequest{})
	if p := problem(t, err); p.Status != http.StatusConflict {
		t.Errorf("%+v", p)
	}
	a.halt()
}

// A node that was removed while it ran says so, and names the ways out.
func TestRemovedNodeSaysSo(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	b := join(t, a)
	b.votes(t, a)
	_, err := b.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{Last: true})
	if p := problem(t, err); p.Status != http.StatusConflict || !strings.Contains(p.Detail, "other members remain") {
		t.Errorf("leave --last of two: %+v", p)
	}
	_, err = a.cluster().RemoveMember(t.Context(), b.Status().Cluster.Self)
	must(t, err)
	b.await("the news of its removal", func() bool {
		st := b.Status()
		return !st.Ready && strings.Contains(st.Causes["cluster.membership"], "rejoin --wipe")
	})
	_, err = b.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{Last: true})
	if p := problem(t, err); p.Status != http.StatusConflict || !strings.Contains(p.Detail, "has removed") {
		t.Errorf("leave --last: %+v", p)
	}
	_, err = b.cluster().LeaveCluster(t.Context(), clusterapi.LeaveRequest{}) // it is out already
	must(t, err)
	if code := b.end(); code != process.ExitClean {
		t.Errorf("exit %d", code)
	}
	a.halt()
}

// The leader records its election and the changes that it makes by itself.
func TestChangesOfTheLeaderAreAudited(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	b := join(t, a)
	b.votes(t, a)
	row := func(event string) (detail map[string]string) {
		a.await("the row "+event, func() bool {
			page, err := a.Audit(t.Context(), 0, 0)
			must(t, err)
			at := slices.IndexFunc(page.Rows, func(r nodeapi.AuditRow) bool { return r.Event == event })
			if at >= 0 {
				detail = page.Rows[at].Detail
			}
			return at >= 0
		})
		return detail
	}
	status, err := a.cluster().ClusterStatus(t.Context())
	must(t, err)
	if got := row("cluster.elected")["term"]; got != strconv.FormatUint(status.Term, 10) {
		t.Errorf("elected in term %q, want %d", got, status.Term)
	}
	for _, event := range []string{"cluster.admitted", "cluster.promoted"} {
		if got := row(event)["server"]; got != b.Status().Cluster.Self {
			t.Errorf("%s: %q", event, got)
		}
	}
	_, err = a.cluster().RemoveMember(t.Context(), b.Status().Cluster.Self)
	must(t, err)
	b.halt()
	a.halt()
}

// memberOf returns the entry of one member.
func memberOf(s *clusterapi.ClusterStatus, id string) clusterapi.Member {
	for _, m := range s.Members {
		if m.ID == id {
			return m
		}
	}
	return clusterapi.Member{}
}

// Without a leader a node tells a member that answers from one that does not, where that one was,
// and what to do.
func TestStatusWithoutALeader(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	b := join(t, a)
	b.votes(t, a)
	token, err := a.cluster().MintClusterToken(t.Context(), clusterapi.JoinTokenRequest{Standby: true})
	must(t, err)
	c := a.with(live(t, joinedBy(t, token)))
	idA, urlA, addrA := a.self(), a.server.URL(), a.cfg.Cluster.Bind
	b.await("the URL of the leader", func() bool { return member.At(b.cfg.Node.DataDir).SavedURLs()[idA] == urlA })
	c.await("the admission", func() bool { return !exists(c.cfg.Path("cluster", "join.json")) })
	a.halt() // b may take over, and lose its lease
	var s clusterapi.ClusterStatus
	b.await("the loss of the leader", func() bool {
		s, err = b.cluster().ClusterStatus(t.Context())
		return err == nil && s.Leader == "" && memberOf(&s, b.self()).Healthy // it has just started
	})
	if m := memberOf(&s, idA); m.Answers || m.Healthy || m.URL != urlA || !strings.Contains(m.Note, addrA) {
		t.Errorf("the member that does not run: %+v", m)
	}
	for _, l := range []*lives{b, c} {
		m := memberOf(&s, l.self())
		if !m.Answers || !m.Healthy || m.URL != l.server.URL() || m.Applied == 0 || m.Note != "" {
			t.Errorf("a member that answers: %+v", m)
		}
	}
	want := "1 of 2 voters do not answer: " + idA + " (" + addrA + "). Start them. " +
		"If they are lost for ever: `ronbox cluster recover --only-me`."
	if got := s.Advice(); got != want {
		t.Errorf("advice %q", got)
	}
	f := b.found("cluster_tolerance")
	if f.Level != host.Bad || !strings.Contains(f.Seen, idA) || strings.Contains(f.Seen, b.self()) {
		t.Errorf("the doctor finds %+v", f)
	}
	c.halt()
	b.halt()
}
