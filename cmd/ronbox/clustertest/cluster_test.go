package clustertest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// cluster is three nodes, of which the first one made the cluster.
type cluster struct {
	nodes []*node
	links *links
	svc   *nodes
	admin []clusterapi.Client // of the admin sockets

	scratch string // a folder of the test
	token   string // a file; all nodes take the token
	secret  string // its content
}

// newCluster makes a cluster of size nodes: a node with data becomes a member, and the others join it.
func newCluster(t testing.TB, size int) *cluster {
	t.Helper()
	c := newNodes(t, size)
	c.nodes[0].must(t, nil, "cluster", "init", "--json")
	for i := 1; i < size; i++ {
		c.join(t, i)
	}
	c.well(t)
	return c
}

// newNodes returns nodes of which the first one runs alone, with the accounts of the bank. The others
// have no data yet.
func newNodes(t testing.TB, size int) *cluster {
	t.Helper()
	c := emptyNodes(t, size)
	first := c.nodes[0]
	c.secret = first.open(t)
	first.must(t, nil, "wallet", "issue", rewardAccount, fmt.Sprint(rewardFunds), "-q")
	for file, from := range map[string]string{
		"signer.key": "registry/dev-signer.key", "policy.key": "rewarder/dev-policy.key",
	} {
		copyFile(t, filepath.Join(first.dir, from), filepath.Join(c.scratch, file))
	}
	c.opened(t)
	return c
}

// opened notes that the first node runs, with data.
func (c *cluster) opened(t testing.TB) {
	t.Helper()
	first := c.nodes[0]
	c.links.runs(0, first.proc.cmd.Process.Pid)
	c.token = filepath.Join(c.scratch, "token")
	copyFile(t, filepath.Join(first.dir, "admin.token"), c.token)
	copyFile(t, filepath.Join(first.dir, "ronbox.toml"), filepath.Join(c.scratch, "ronbox.toml"))
	c.svc = newService(t, c.secret, c.nodes...)
}

// emptyNodes returns nodes that have no data yet.
func emptyNodes(t testing.TB, size int) *cluster {
	t.Helper()
	c := &cluster{scratch: t.TempDir()}
	var binds []string
	for range size {
		binds = append(binds, hosttest.FreeAddr(t))
	}
	c.links = newLinks(t, binds)
	for i, bind := range binds {
		n := newNode(t, string(rune('a'+i)), "RONBOX_CLUSTER__BIND="+bind,
			"RONBOX_CLUSTER__ADVERTISE="+c.links.address(i), "RONBOX_CLUSTER__HEARTBEAT="+heartbeatFlag.String())
		c.nodes = append(c.nodes, n)
		c.admin = append(c.admin, clusterapi.NewClient(n.socket(t)))
	}
	return c
}

// start starts a node whose directory is complete.
func (c *cluster) start(t testing.TB, i int) {
	t.Helper()
	c.nodes[i].launch(t)
	c.links.runs(i, c.nodes[i].proc.cmd.Process.Pid)
}

// join lets a node without a directory join, and starts it.
func (c *cluster) join(t testing.TB, i int) {
	t.Helper()
	var token struct {
		Token string `json:"token"`
		URL   string `json:"url"`
	}
	c.nodes[c.leader(t)].must(t, &token, "cluster", "token", "--json")
	must(t, os.MkdirAll(c.nodes[i].dir, 0o700))
	copyFile(t, filepath.Join(c.scratch, "ronbox.toml"), filepath.Join(c.nodes[i].dir, "ronbox.toml"))
	c.nodes[i].must(t, nil, "cluster", "join", token.URL, "--token", token.Token, "--json")
	c.start(t, i)
	c.well(t)
}

// status asks a node for the cluster as it sees it.
func (c *cluster) status(t testing.TB, i int) (clusterapi.ClusterStatus, error) {
	t.Helper()
	return c.admin[i].ClusterStatus(t.Context())
}

// leader waits until a running node leads and takes writes, and returns its place.
func (c *cluster) leader(t testing.TB) (leads int) {
	t.Helper()
	until(t, "a node leads", nil, func() bool {
		leads = slices.IndexFunc(c.nodes, func(n *node) bool { return c.leads(t, n) })
		return leads >= 0
	})
	return leads
}

// leads reports whether a node runs, leads and takes writes.
func (c *cluster) leads(t testing.TB, n *node) bool {
	t.Helper()
	i := slices.Index(c.nodes, n)
	s, err := c.status(t, i)
	return n.running() && err == nil && s.Self == s.Leader && ready(t.Context(), c.admin[i].Client)
}

// follower returns a node at random that does not lead.
func (c *cluster) follower(t testing.TB, d *rand.Rand) int {
	t.Helper()
	return (c.leader(t) + 1 + d.IntN(len(c.nodes)-1)) % len(c.nodes)
}

// well waits until all running nodes are healthy voters that take writes.
func (c *cluster) well(t testing.TB) {
	t.Helper()
	var why string
	defer func() {
		if t.Failed() {
			t.Log(why)
		}
	}()
	until(t, "all nodes are well", c.nodes, func() bool {
		why = c.unwell(t)
		return why == ""
	})
}

// unwell returns what keeps the cluster from being well, or "".
func (c *cluster) unwell(t testing.TB) string {
	t.Helper()
	running := 0
	for i, n := range c.nodes {
		if !n.running() {
			continue
		}
		running++
		if r, err := c.admin[i].Ready(t.Context(), "", "write"); err != nil || !r.Ready {
			return fmt.Sprintf("%s is not ready: %+v, %v", n.name, r, err)
		}
	}
	s, err := c.status(t, c.leader(t))
	if err != nil {
		return err.Error()
	}
	sick := slices.IndexFunc(s.Members, func(m clusterapi.Member) bool {
		return m.Role != clusterapi.RoleVoter || !m.Answers
	})
	if sick >= 0 || len(s.Members) != running {
		return fmt.Sprintf("%d nodes run, the leader says %+v", running, s)
	}
	return ""
}

// id returns the id of a running node in the cluster.
func (c *cluster) id(t testing.TB, i int) string {
	t.Helper()
	s, err := c.status(t, i)
	must(t, err)
	return s.Self
}

// copyFile copies a file that only its owner may read.
func copyFile(t testing.TB, from, to string) {
	t.Helper()
	raw, err := os.ReadFile(from)
	must(t, err)
	must(t, os.WriteFile(to, raw, 0o600))
}

// copyDir copies a directory.
func copyDir(t testing.TB, from, to string) {
	t.Helper()
	must(t, os.RemoveAll(to))
	must(t, os.CopyFS(to, os.DirFS(from)))
}

// verified is the output of `db verify`, as far as it is read here.
type verified struct {
	OK        bool   `json:"ok"`
	Problem   string `json:"problem"`
	StateHash string `json:"state_hash"`
	Seq       uint64 `json:"seq"`
}

// sameState verifies a snapshot of each node, and expects equal state hashes. Background commands of
// the leader go on, so it repeats that while the positions differ.
func (c *cluster) sameState(t testing.TB) verified {
	t.Helper()
	var all []verified
	for range 20 {
		all = nil
		for _, n := range c.nodes {
			all = append(all, n.snapshot(t))
		}
		first := all[0]
		bad := func(v verified) bool { return !v.OK || v.Seq == first.Seq && v.StateHash != first.StateHash }
		if slices.ContainsFunc(all, bad) {
			break
		}
		if !slices.ContainsFunc(all, func(v verified) bool { return v.StateHash != first.StateHash }) {
			return first
		}
	}
	t.Fatalf("the files differ: %+v", all)
	return verified{}
}

// snapshot takes a snapshot of a node and verifies it.
func (n *node) snapshot(t testing.TB) (v verified) {
	t.Helper()
	dir := filepath.Join(filepath.Dir(n.dir), "snap")
	must(t, os.RemoveAll(dir))
	var snap struct {
		File string `json:"file"`
	}
	n.must(t, &snap, "db", "snapshot", dir, "--json")
	n.must(t, &v, "db", "verify", snap.File, "--json")
	must(t, os.RemoveAll(dir))
	return v
}

// journal returns the transactions of the ledger, by key.
func (n *node) journal(t testing.TB) map[string][]string {
	t.Helper()
	file := filepath.Join(filepath.Dir(n.dir), "journal")
	must(t, os.RemoveAll(file))
	n.must(t, nil, "ledger", "export", "--out", file, "-q")
	raw, err := os.ReadFile(file)
	must(t, err)
	out := map[string][]string{}
	for line := range strings.Lines(string(raw)) {
		var r struct {
			Op   string `json:"op"`
			TxID string `json:"txid"`
			Idem string `json:"idem"`
		}
		decode(t, line, &r)
		if r.Op == "transfer" {
			out[r.Idem] = append(out[r.Idem], r.TxID)
		}
	}
	return out
}
