package member

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/hashicorp/raft"
	raftwal "github.com/hashicorp/raft-wal"

	"ronbox/engines/cluster/peer"
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
		return nil, fmt.Errorf("raft log: %w", err)
	}
	if later != nil {
		servers = later
	}
	return servers, nil
}

// logConfiguration returns the last configuration in the log after an index, or nil if there is
// none.
func logConfiguration(dir string, after uint64) (servers []raft.Server, err error) {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	w, err := raftwal.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	first, err := w.FirstIndex()
	if err != nil {
		return nil, err
	}
	last, err := w.LastIndex()
	if err != nil {
		return nil, err
	}
	for at := last; first > 0 && at >= first && at > after; at-- {
		var e raft.Log
		if err := w.GetLog(at, &e); err != nil {
			return nil, err
		}
		if e.Type == raft.LogConfiguration {
			return decodeConfiguration(e.Data)
		}
	}
	return nil, nil
}
