package member

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/host"
	"ronbox/appliance/peer"
	"ronbox/store"
	"ronbox/store/lock"
)

// Names in the data directory.
const (
	databaseFile = "ronbox.db" // or a link to it

	clusterDir = "cluster"     // identity and marks
	freshDir   = "cluster.new" // identity that a recover or a rejoin is about to use
	raftDir    = "raft"        // log and vote
)

// Suffixes of files beside the database, which may lie on another disk than the data directory.
const (
	installSuffix = ".install" // a complete file that raft has received
	fetchSuffix   = ".fetch"   // a file that FetchFile is receiving
)

// Names in the directory of the cluster. A mark is there from the first change of a verb to its
// last one.
const (
	initMark    = "init.json"
	joinMark    = "join.json" // remains until the node is admitted
	leaveMark   = "leave.json"
	rejoinMark  = "rejoin.json"
	recoverMark = "recover.json"

	peersFile = "peers.json" // addresses of members, for a node that has lost its file
	urlsFile  = "urls.json"  // URLs of members by id, for a node that knows no leader
)

var (
	// ErrUnfinished is returned for a directory in which a killed verb must be run again.
	ErrUnfinished = errors.New("a command of the cluster was interrupted")
	// ErrMember is returned by verbs for a node that is a member, or about to become one.
	ErrMember = errors.New("the node belongs to a cluster")
	// ErrAlone is returned by verbs for a node that is not a member.
	ErrAlone = errors.New("the node belongs to no cluster")
	// ErrNotEmpty is returned by Join for a directory that is not empty.
	ErrNotEmpty = errors.New("the directory is not empty")
	// ErrNotLast is returned by LeaveLast while there are other members.
	ErrNotLast = errors.New("other members remain")
	// ErrQuorum is returned when the healthy voters without the node would be no quorum.
	ErrQuorum = errors.New("cluster: the healthy voters that remain are no quorum")
	// ErrEphemeral is returned by verbs for a node without a file.
	ErrEphemeral = errors.New("amnesia.enabled is set: the node has no file")
)

// Dir is the data directory of a node. Its verbs exclude each other, also between processes.
type Dir struct {
	path     string
	database string
	step     func(name string) error // called before each change; set by tests
}

// At returns the data directory at path.
func At(path string) *Dir {
	// a file in a missing folder is not opened and not replaced: its path is as good as the error
	database, _ := lock.Target(filepath.Join(path, databaseFile))
	return &Dir{path: path, database: database, step: func(string) error { return nil }}
}

// Database returns the path of the database: that of the file itself, if the data directory has a
// symbolic link to it.
func (d *Dir) Database() string { return d.database }

// InstallFile returns the path of a complete file that raft has received. It lies beside the
// database.
func (d *Dir) InstallFile() string { return d.database + installSuffix }

func (d *Dir) fetchFile() string { return d.database + fetchSuffix }

// Identity reads the identity of the node; see [peer.Load].
func (d *Dir) Identity() (*peer.Identity, error) { return peer.Load(d.file(clusterDir), store.Schema) }

// Follow gives the node the address of its configuration; see [peer.Identity.Follow]. It returns
// the identity also if that cannot be written.
func (d *Dir) Follow(id *peer.Identity, advertise, bind string) (*peer.Identity, error) {
	now := id.Follow(advertise, bind)
	if now == id {
		return id, nil
	}
	unlock, err := d.lock()
	if err != nil {
		return now, err
	}
	defer unlock()
	return now, d.do("address", func() error { return now.Save(d.file(clusterDir)) })
}

// Renew gives the node a new key and a new certificate from now on: it writes them, and id uses
// them for new connections. It returns [peer.ErrNoAuthority], and [store.ErrLocked] while another
// verb changes the directory. After an error the node goes on with the certificate that it has.
func (d *Dir) Renew(id *peer.Identity, now time.Time) error {
	unlock, err := d.lock()
	if err != nil {
		return err
	}
	defer unlock()
	fresh, err := id.Renewed(now)
	if err != nil {
		return err
	}
	if err := d.do("certificate", func() error { return fresh.Save(d.file(clusterDir)) }); err != nil {
		return err
	}
	id.Adopt(fresh)
	return nil
}

// valid returns the identity of a stopped node with a certificate that is valid now, as far as the
// node can issue one. It writes nothing.
func (d *Dir) valid(now time.Time) (*peer.Identity, error) {
	id, err := d.Identity()
	if err != nil || id.CheckDates(now) == nil || id.Authority() == nil {
		return id, err
	}
	return id.Renewed(now)
}

func (d *Dir) file(names ...string) string {
	return filepath.Join(append([]string{d.path}, names...)...)
}

// Contents returns the names in the data directory that keep it from being a new one; see
// [host.IsContents]. The directory of the cluster is one of them, unless a verb has made it only
// for its lock, or a join was killed in its first write.
func (d *Dir) Contents() (names []string, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if host.IsContents(e.Name()) && (e.Name() != clusterDir || !d.isUnused()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// isUnused reports whether the directory of the cluster holds at most the temporary file of the
// mark of a join.
func (d *Dir) isUnused() bool {
	inside, err := os.ReadDir(d.file(clusterDir))
	return err == nil && !slices.ContainsFunc(inside, func(e fs.DirEntry) bool { return e.Name() != joinMark+".tmp" })
}

// do makes one change. A test may stop before it.
func (d *Dir) do(name string, change func() error) error {
	err := d.step(name)
	if err == nil {
		err = change()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// lock takes the lock of the verbs, which ends with the process or the returned function. It makes
// the directory of the cluster.
func (d *Dir) lock() (unlock func(), err error) {
	dir := d.file(clusterDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := lock.File(f, true, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// has reports whether a mark is there.
func (d *Dir) has(mark string) bool {
	_, err := os.Lstat(d.file(clusterDir, mark))
	return err == nil
}

// readMark returns the content of a mark, or nil if the mark does not exist.
func readMark[M any](d *Dir, name string) (*M, error) {
	text, err := os.ReadFile(d.file(clusterDir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	m := new(M)
	if err == nil {
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

func (d *Dir) writeMark(name string, content any) error {
	text, err := json.Marshal(content)
	if err != nil {
		return err
	}
	return peer.WriteFile(d.file(clusterDir, name), append(text, '\n'))
}

func (d *Dir) removeMark(name string) error {
	if err := os.Remove(d.file(clusterDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return host.SyncDir(d.file(clusterDir))
}

// removeAll removes files or directories, and syncs the directories that they were in.
func removeAll(paths ...string) (err error) {
	for _, path := range paths {
		err = errors.Join(err, os.RemoveAll(path), host.SyncDir(filepath.Dir(path)))
	}
	return err
}

// dissolve removes the directory of the cluster, with the mark last.
func (d *Dir) dissolve(mark string) error {
	dir := d.file(clusterDir)
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if e.Name() != mark {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	if err == nil {
		err = d.removeMark(mark)
	}
	if err != nil {
		return err
	}
	return removeAll(dir)
}

// wipes reports whether a rejoin was interrupted after it began to remove files. A rejoin that was
// interrupted before has left the node unchanged.
func (d *Dir) wipes() bool {
	begun, err := readMark[rejoinBegun](d, rejoinMark)
	return err != nil || begun != nil && begun.Wipes
}

// idle returns ErrUnfinished if a verb was interrupted, except those with the given marks. A rejoin
// that has removed nothing does not count: it may be one that cannot succeed.
func (d *Dir) idle(except ...string) error {
	for _, other := range []struct{ mark, verb string }{
		{initMark, "init"}, {leaveMark, "leave --last"}, {recoverMark, "recover"},
		{rejoinMark, "rejoin --wipe"}, {joinMark, "join"}, // a rejoin has both marks at its end
	} {
		if !slices.Contains(except, other.mark) && d.has(other.mark) && (other.mark != rejoinMark || d.wipes()) {
			return fmt.Errorf("%w: run `ronbox cluster %s` again", ErrUnfinished, other.verb)
		}
	}
	return nil
}

// unlocked returns an error that names the process which has the file open for writing, if there is
// one.
func (d *Dir) unlocked() error {
	if e := lock.Holder(d.Database()); e != nil {
		return e
	}
	return nil
}

// SavePeers keeps the addresses of members for a rejoin of a node that has lost its file. At most
// 64 are kept.
func (d *Dir) SavePeers(addrs []string) error {
	addrs = slices.Compact(slices.Sorted(slices.Values(addrs)))
	return d.writeMark(peersFile, addrs[:min(len(addrs), maxPeers)])
}

// maxPeers bounds the addresses of members that a node keeps and tries.
const maxPeers = 64

// SaveURLs keeps the URLs of the public ports of members, by id.
func (d *Dir) SaveURLs(urls map[string]string) error { return d.writeMark(urlsFile, urls) }

// SavedURLs returns what SaveURLs has kept, or nil.
func (d *Dir) SavedURLs() map[string]string {
	urls, err := readMark[map[string]string](d, urlsFile)
	if err != nil || urls == nil {
		return nil
	}
	return *urls
}

// savedPeers returns what SavePeers has kept.
func (d *Dir) savedPeers() []string {
	addrs, err := readMark[[]string](d, peersFile)
	if err != nil || addrs == nil {
		return nil
	}
	return (*addrs)[:min(len(*addrs), maxPeers)]
}
