package member

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// memberOf makes a stopped node a member of a cluster whose other member has an address.
func memberOf(t *testing.T, other string) (d *Dir, id *peer.Identity) {
	t.Helper()
	d = alone(t)
	id, err := d.Init(testAddr)
	if err != nil {
		t.Fatal(err)
	}
	m, err := store.ReadMembership(d.Database())
	if err != nil {
		t.Fatal(err)
	}
	m.Raw = raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{
		{ID: raft.ServerID(id.ServerID()), Address: testAddr}, {ID: "other", Address: raft.ServerAddress(other)},
	}})
	m.Applied.Place, m.Applied.Origin = store.Place{Index: 70, Term: 3}, ""
	if err := errors.Join(store.SetMembership(d.Database(), m), os.Mkdir(d.file(raftDir), 0o700)); err != nil {
		t.Fatal(err)
	}
	return d, id
}

func TestRecover(t *testing.T) {
	from, old := memberOf(t, nobody)
	by := store.Event{Event: "cluster.recovered", Decision: "allow"}
	verb := func(d *Dir) error {
		_, err := d.Recover(t.Context(), RecoverOptions{By: by})
		return err
	}
	was := infoOf(t, from)
	check := func(d *Dir) {
		mustBeOnly(t, d, nil)
		id, err := d.Identity()
		if err != nil || id.ClusterID() == old.ClusterID() || id.ServerID() == old.ServerID() || id.Pin() == old.Pin() {
			t.Errorf("identity %v, err = %v, want that of a new cluster", id, err)
		}
		now := infoOf(t, d)
		if now.Incarnation == was.Incarnation || now.AuditSeq != was.AuditSeq+1 {
			t.Errorf("info %+v after %+v, want a new incarnation and one audit row", now, was)
		}
		m, err := store.ReadMembership(d.Database())
		if err != nil || m.Applied.Place != (store.Place{Index: 70, Term: 4}) || m.Applied.Origin != "init" {
			t.Errorf("membership %+v, err = %v", m, err)
		}
	}
	steps(t, from, verb, func(d *Dir) { // run again
		if id, err := d.Identity(); d.has(recoverMark) || err == nil && id.ClusterID() == old.ClusterID() {
			if err := verb(d); err != nil {
				t.Error(err)
			}
		}
		check(d)
	})
	steps(t, from, verb, func(d *Dir) { // booted instead
		mustFinish(t, d)
		if id, err := d.Identity(); err != nil || id.ClusterID() != old.ClusterID() {
			check(d)
		}
	})
	if err := verb(alone(t)); !errors.Is(err, ErrAlone) {
		t.Errorf("recover of a node alone: err = %v", err)
	}
}

// A node is not recovered while the port of another member answers, be it as a node of another
// cluster: that one was recovered too.
func TestRecoverWhileOthersRun(t *testing.T) {
	other := lead(t)
	d, old := memberOf(t, other.addr+"#standby")
	by := RecoverOptions{By: store.Event{Event: "cluster.recovered", Decision: "allow"}}
	_, err := d.Recover(t.Context(), by)
	if !errors.Is(err, ErrOthersRun) || !strings.Contains(err.Error(), other.addr+" (as a node of another cluster)") {
		t.Errorf("err = %v, want ErrOthersRun and what answers", err)
	}
	if id, err := d.Identity(); err != nil || id.ClusterID() != old.ClusterID() || d.has(recoverMark) {
		t.Errorf("a refused recover has changed the node: %v, err = %v", id, err)
	}
	by.OthersRun = true
	if _, err := d.Recover(t.Context(), by); err != nil {
		t.Error(err)
	}
	mustBeOnly(t, d, nil)
}
