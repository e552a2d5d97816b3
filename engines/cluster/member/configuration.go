package member

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// onlyMember returns the configuration of a cluster whose only member is id.
func onlyMember(id *peer.Identity) []byte {
	return raft.EncodeConfiguration(raft.Configuration{Servers: []raft.Server{{
		Suffrage: raft.Voter,
		ID:       raft.ServerID(id.ServerID()),
		Address:  raft.ServerAddress(id.Advertise()),
	}}})
}

// decodeConfiguration decodes a configuration of the file or of the log. Raft's decoder panics on a
// damaged one.
func decodeConfiguration(raw []byte) (servers []raft.Server, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: members: %v", store.ErrCorrupt, v)
		}
	}()
	return raft.DecodeConfiguration(raw).Servers, nil
}

// isOnly reports whether id is the only one of servers.
func isOnly(servers []raft.Server, id string) bool {
	return len(servers) == 1 && string(servers[0].ID) == id
}

// addresses returns the addresses of members, without that of self.
func addresses(servers []raft.Server, self string) (addrs []string) {
	for _, s := range servers {
		if string(s.ID) != self {
			addr, _, _ := strings.Cut(string(s.Address), "#") // a mark of standbys follows the address
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// fileConfiguration returns the configuration in the file and its place in the log. It returns
// ErrAlone if the file has no membership.
func (d *Dir) fileConfiguration() (servers []raft.Server, index uint64, err error) {
	m, err := store.ReadMembership(d.Database())
	if err == nil && m == nil {
		err = ErrAlone
	}
	if err != nil {
		return nil, 0, err
	}
	servers, err = decodeConfiguration(m.Raw)
	return servers, m.Index, err
}

// lastConfiguration returns the last configuration that the node knows, from its file or from the
// log, where it may not be committed. No process may have the log open. It returns ErrAlone if the
// file has no membership.
func (d *Dir) lastConfiguration() ([]raft.Server, error) {
	servers, index, err := d.fileConfiguration()
	if err != nil {
		return nil, err
	}
	later, err := logConfiguration(d.file(raftDir), index)
	if err != nil {
		return nil, d.logFault(err)
	}
	if later != nil {
		servers = later
	}
	return servers, nil
}

// logConfiguration returns the last configuration in the log after an index, or nil if there is
// none.
func logConfiguration(dir string, after uint64) (servers []raft.Server, err error) {
	err = readLog(dir, after, func(e *raft.Log) (err error) {
		if e.Type == raft.LogConfiguration {
			servers, err = decodeConfiguration(e.Data)
		}
		return err
	})
	return servers, err
}

// openLog opens the log. A panic or a memory fault of bbolt, which holds the vote, is ErrCorrupt.
func openLog(dir string) (w *raftwal.WAL, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: the raft log: %v", store.ErrCorrupt, v)
		}
	}()
	return raftwal.Open(dir)
}

// readLog calls fn for each entry of the log after an index, in order. Without a log there are
// none. No process may have the log open.
func readLog(dir string, after uint64, fn func(*raft.Log) error) (err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	w, err := openLog(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	first, err := w.FirstIndex()
	if err != nil || first == 0 {
		return err
	}
	last, err := w.LastIndex()
	if err != nil {
		return err
	}
	for at := max(first, after+1); at <= last; at++ {
		var e raft.Log
		if err := w.GetLog(at, &e); err != nil {
			return err
		}
		if err := fn(&e); err != nil {
			return err
		}
	}
	return nil
}

// mostReplayed bounds the entries of one transaction of replay, bytes.
const mostReplayed = 4 << 20

// replay applies the entries of the log that the file lacks: the leader may have acknowledged them
// before this node learned that a quorum has them. A mark must prevent that the node starts before
// the verb has replaced the members in the file.
func (d *Dir) replay() error {
	m, err := store.ReadMembership(d.Database())
	if err != nil || m == nil {
		return err
	}
	var es []store.Placed
	bytes := 0
	flush := func() error {
		if len(es) == 0 {
			return nil
		}
		run := es
		es, bytes = nil, 0
		return d.do("replay", func() error { return store.FollowOffline(d.Database(), run) })
	}
	err = readLog(d.file(raftDir), m.Applied.Index, func(e *raft.Log) error {
		if e.Type != raft.LogCommand || len(e.Data) == 0 {
			return nil
		}
		es = append(es, store.Placed{Place: store.Place{Index: e.Index, Term: e.Term}, Entry: e.Data})
		if bytes += len(e.Data); bytes < mostReplayed {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return d.logFault(err)
	}
	return nil
}

// logFault returns the error of a verb that cannot read the log, or apply it to the file.
func (d *Dir) logFault(err error) error {
	return fmt.Errorf("raft log: %w; to give up what only the log has, move %s away and run the command again",
		err, d.file(raftDir))
}
