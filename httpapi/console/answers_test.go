package console

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire"
	"ronbox/httpapi/wire/node"
)

// aged adds the age of a follower's copy to the answers of a node.
type aged struct{ recorded }

func (a aged) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(ageHeader, "40")
	a.recorded.ServeHTTP(w, r)
}

// edit changes a recorded answer.
func edit[T any](t *testing.T, n recorded, target string, change func(*T)) {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(n[target].Body), &v); err != nil {
		t.Fatal(err)
	}
	change(&v)
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	a := n[target]
	a.Body = string(raw)
	n[target] = a
}

// forbid makes a node refuse to answer targets, as it does for a session that lacks a scope.
func forbid(n recorded, targets ...string) {
	for _, target := range targets {
		a := n[target]
		a.Status, a.Type = http.StatusForbidden, "application/problem+json"
		a.Body = `{"type":"about:blank","title":"Forbidden","status":403,"reason":"denied","details":{"scope":"node.read"}}`
		n[target] = a
	}
}

const (
	atStatus = "/admin/v1/status"
	atConfig = "/admin/v1/config"
	atDoctor = "/admin/v1/doctor"
	atSeries = "/admin/v1/series"
)

// answersOf returns the answers of the first screen.
func answersOf(t *testing.T, n http.Handler, off ...string) map[string]answer {
	t.Helper()
	h := newGolden(t, n)
	info := h.d.Info()
	for _, name := range off {
		info.Services[name] = "off"
	}
	h.d.Info = func() wire.VersionInfo { return info }
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	out := map[string]answer{}
	for _, a := range overview(h.viewOf(t, s, "/console/")).(overviewData).Answers {
		out[a.Question] = a
	}
	return out
}

// follows makes a node follow a hub.
func follows(t *testing.T, n recorded) {
	edit(t, n, atConfig, func(c *node.ConfigShow) {
		c.Keys = append(c.Keys, node.ConfigKey{Key: "registry.follow.url", Value: `"https://hub:8080"`, Source: "file"})
	})
}

// inCluster makes a node a member whose check of the others is in a state.
func inCluster(t *testing.T, n recorded, m node.MemberStatus, state string) {
	edit(t, n, atStatus, func(s *node.Status) { s.Cluster = &m })
	edit(t, n, atDoctor, func(c *node.Checkup) {
		c.Findings = append(c.Findings, node.NodeFinding{Check: "cluster_tolerance", State: state, Message: "n3 is silent"})
	})
}

// The answer about the copies is good only if all that it rests on is known and in order.
func TestInSync(t *testing.T) {
	good, no, behind := light{"good", "yes"}, light{"bad", "no"}, light{"warn", "behind"}
	stale := func(s *node.Status) { s.Causes = map[string]string{followKey: "the newest checkpoint is old"} }
	leads := node.MemberStatus{Self: "n1", Role: "leader", Leader: "n1"}
	behindBy := func(lag uint64) node.MemberStatus {
		return node.MemberStatus{Self: "n2", Role: "follower", Leader: "n1", Lag: lag}
	}
	for doc, tt := range map[string]struct {
		change func(recorded)
		silent bool // nothing was read of the hub
		off    []string
		want   light
		says   string
	}{
		"one node":           {silent: true, want: light{"good", "one node"}, says: "follows no other"},
		"status not known":   {change: func(n recorded) { forbid(n, atStatus, atConfig) }, silent: true, want: unknown, says: "needs the scope node.read"},
		"config not known":   {change: func(n recorded) { forbid(n, atConfig) }, silent: true, want: unknown, says: "is not known. This needs the scope"},
		"registry off":       {change: func(n recorded) { forbid(n, atConfig) }, off: []string{"registry"}, want: light{"good", "one node"}},
		"some hub":           {change: func(n recorded) { forbid(n, atConfig) }, want: good, says: "follows another node, version 3, 40s old"},
		"some hub, in doubt": {change: func(n recorded) { forbid(n, atConfig, atStatus) }, want: unknown, says: "another node"},
		"a hub":              {change: func(n recorded) { follows(t, n) }, want: good, says: "follows https://hub:8080, version 3, 40s old"},
		"nothing heard":      {change: func(n recorded) { follows(t, n) }, silent: true, want: unknown, says: "https://hub:8080"},
		"an old copy": {change: func(n recorded) { follows(t, n); edit(t, n, atStatus, stale) }, want: no,
			says: "The newest checkpoint is old"},
		"no leader":       {change: func(n recorded) { inCluster(t, n, node.MemberStatus{Role: "follower"}, "ok") }, want: no, says: "no leader"},
		"leader":          {change: func(n recorded) { inCluster(t, n, leads, "ok") }, want: good, says: "leads the cluster"},
		"a silent member": {change: func(n recorded) { inCluster(t, n, leads, "fail") }, want: no, says: "N3 is silent"},
		"a sick member":   {change: func(n recorded) { inCluster(t, n, leads, "warn") }, want: light{"warn", "look"}, says: "N3 is silent"},
		"no checks": {change: func(n recorded) { inCluster(t, n, leads, "ok"); forbid(n, atDoctor) }, want: unknown,
			says: "state of the other members is not known"},
		"has all":    {change: func(n recorded) { inCluster(t, n, behindBy(0), "ok") }, want: good, says: "has all of its log"},
		"a moment":   {change: func(n recorded) { inCluster(t, n, behindBy(1), "ok") }, want: good, says: "1 entry of the log behind"},
		"lags":       {change: func(n recorded) { inCluster(t, n, behindBy(5000), "ok") }, want: behind, says: "behind"},
		"lags alone": {change: func(n recorded) { inCluster(t, n, behindBy(5000), "fail") }, want: no, says: "behind"},
	} {
		n := readRecorded(t)
		if tt.change != nil {
			tt.change(n)
		}
		var served http.Handler = aged{n}
		if tt.silent {
			served = n
		}
		got := answersOf(t, served, tt.off...)["In sync?"]
		if text := saidBy(got); got.light != tt.want || !strings.Contains(text, tt.says) {
			t.Errorf("%s: %v %q, want %v %q", doc, got.light, text, tt.want, tt.says)
		}
	}
}

// saidBy returns all sentences of an answer.
func saidBy(a answer) string {
	text := a.Text
	for _, more := range a.More {
		text += " | " + more.Text
	}
	return text
}

// No answer is good for a session that may read nothing of what it rests on.
func TestAnswersThatAreNotKnown(t *testing.T) {
	n := readRecorded(t)
	forbid(n, slices.Collect(maps.Keys(n))...)
	for question, a := range answersOf(t, n) {
		if a.light != unknown {
			t.Errorf("%s %v %q", question, a.light, saidBy(a))
		}
	}
	n = readRecorded(t)
	forbid(n, atStatus, atSeries)
	if a := answersOf(t, n)["Money moving?"]; a.light != unknown || !strings.Contains(saidBy(a), "is not known") {
		t.Errorf("money: %v %q", a.light, saidBy(a))
	}
}

// The registry of a follower names its hub, and how old its copy is.
func TestPagesOfAFollower(t *testing.T) {
	n := readRecorded(t)
	follows(t, n)
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	h := newGolden(t, aged{n})
	for path, want := range map[string]string{
		"/console/":         "The registry follows https://hub:8080, version 3, 40s old",
		"/console/registry": "The registry follows https://hub:8080, version 3, 40s old",
		"/console/fleet":    "signed 40s ago",
	} {
		if page := string(h.page(t, s, path)); !strings.Contains(page, want) {
			t.Errorf("%s does not name the hub", path)
		}
	}
}

// Payments are counted since the start of the node, and the answer claims no more.
func TestPaymentsSinceTheStart(t *testing.T) {
	for uptime, want := range map[int64]string{
		42:   "3 payments since the start of the node",
		600:  "1 payment in the last minute, 3 since the start of the node",
		3600: "1 payment in the last minute, 3 in the last hour",
	} {
		if got := paidText(1, 3, uptime, true); got != want {
			t.Errorf("%d s: %q, want %q", uptime, got, want)
		}
	}
	if got := paidText(1, 3, 0, false); got != "1 payment in the last minute, 3 in the last hour" {
		t.Errorf("not known: %q", got)
	}
}
