package host

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/unit"
)

const (
	// slowSync and hopelessSync grade a disk by its median sync. A commit waits for two syncs. At
	// 10 ms a disk is as slow as a rotating one. At 200 ms the node reports its store as slow most
	// of the time.
	slowSync     = 10 * time.Millisecond
	hopelessSync = 200 * time.Millisecond
	// spareFiles is the number of files besides connections: 256 objects that the edge keeps open,
	// and the database, logs, sockets, snapshots.
	spareFiles = 320
	// littleMemory is the memory of a busy node without its page cache.
	littleMemory = 256 << 20
	// A listen queue of fewPending connections overflows in bursts.
	fewPending = 512
	// clockMayMiss is well below the tolerance of tokens (30 s) and signatures (5 m), because the
	// clock that made them may be wrong as well.
	clockMayMiss = time.Second
	// growth is the increment by which the database grows.
	growth = 16 << 20
)

func checkFolder(in Inputs) Finding {
	const check = "data_dir"
	info, err := os.Stat(in.DataDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ok(check, "%s does not exist yet", in.DataDir)
	case err != nil:
		return bad(check, "make it readable for the user of the node", "%v", err)
	case !info.IsDir():
		return bad(check, "name a folder with --data-dir", "%s is not a folder", in.DataDir)
	}
	return classifyFolder(in.DataDir, info.Mode(), ownerOf(info), os.Geteuid())
}

// ownerOf returns the uid of the file's owner, or -1 if it is unknown.
func ownerOf(info fs.FileInfo) int {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid)
	}
	return -1
}

func classifyFolder(dir string, mode fs.FileMode, owner, self int) Finding {
	const check = "data_dir"
	switch perm := mode.Perm(); {
	case perm&0o022 != 0:
		return bad(check, "chmod 700 "+dir, "others may write to %s (%04o)", dir, perm)
	case perm&0o055 != 0:
		return warn(check, "chmod 700 "+dir, "others may look into %s (%04o)", dir, perm)
	case owner != self && self != 0:
		return warn(check, fmt.Sprintf("run as its owner, or chown it to uid %d", self),
			"%s belongs to uid %d, this is uid %d", dir, owner, self)
	}
	return ok(check, "%s (%04o)", dir, mode.Perm())
}

func classifyPort(in Inputs, err error) Finding {
	const check = "port"
	switch {
	case err == nil:
		return ok(check, "%s is free", in.Bind)
	case errors.Is(err, unix.EADDRINUSE) && in.Running:
		return ok(check, "%s is the running node's", in.Bind)
	case errors.Is(err, unix.EADDRINUSE):
		return bad(check, "stop the process that listens there (ss -ltnp), or set server.bind "+
			"(RONBOX_SERVER__BIND)", "%s is taken",
			in.Bind)
	case errors.Is(err, unix.EACCES):
		return bad(check, "take a port from 1024 on, or grant CAP_NET_BIND_SERVICE", "%s needs a privilege", in.Bind)
	}
	return bad(check, "set server.bind to an address of this machine", "%v", err)
}

func classifyFileSystem(in Inputs, f FileSystem, k Kernel) Finding {
	const check = "file_system"
	where := fmt.Sprintf("%s on %s", f.Type, f.Source)
	switch {
	case f.Type == "":
		return unknown(check, errors.New("no mount of it is listed"))
	case f.Network && !in.AllowNetwork:
		return bad(check, "put the data directory on a local disk", "%s: its locks and syncs cannot be trusted", where)
	case f.Network:
		return warn(check, "put the data directory on a local disk", "%s, by store.allow_network", where)
	case f.Memory && !in.Amnesia:
		return warn(check, "put the data directory on a disk", "%s: all is lost when the machine stops", where)
	case f.Type == "ext4" && !k.FastCommitFixed() && f.FastCommit == Yes:
		return bad(check,
			fmt.Sprintf("tune2fs -O ^fast_commit %s on the unmounted disk, or a kernel from 5.17 on", f.Source),
			"%s with fast_commit on kernel %s can damage the database", where, k.Release)
	case f.Type == "ext4" && !k.FastCommitFixed() && f.FastCommit == Unknown:
		return warn(check,
			fmt.Sprintf("see that dumpe2fs -h %s does not list fast_commit, or run doctor as root", f.Source),
			"%s on kernel %s, fast_commit cannot be told", where, k.Release)
	}
	return ok(check, "%s", where)
}

// keptFree returns the space that the store leaves free: store.min_free, but at most an eighth of
// what the database could use of the disk, and at least one increment of its growth.
func keptFree(in Inputs, f FileSystem) int64 {
	return min(in.MinFree, max((f.Free+in.Held)/8, min(growth, f.Total/8)))
}

func classifySpace(in Inputs, f FileSystem) Finding {
	const check = "disk_space"
	switch kept := keptFree(in, f); {
	case f.Free < kept:
		return bad(check, "free some space, or lower store.min_free: the node refuses writes",
			"%s free of %s, kept free are %s", bytesText(f.Free), bytesText(f.Total), bytesText(kept))
	case f.Free < in.MaxBytes-in.Held:
		return warn(check, "watch the free space, or lower "+
			"store.max_bytes", "%s free of %s, the database may grow to %s",
			bytesText(f.Free), bytesText(f.Total), bytesText(in.MaxBytes))
	}
	return ok(check, "%s free of %s", bytesText(f.Free), bytesText(f.Total))
}

func classifySync(l Latency) Finding {
	const check = "disk_sync"
	seen := fmt.Sprintf("median %s, longest %s of %d", short(l.Median), short(l.Most), l.Samples)
	switch {
	case l.Median >= hopelessSync:
		return bad(check, "take another disk: a commit waits for two syncs", "%s", seen)
	case l.Median >= slowSync:
		return warn(check,
			"an SSD with power-loss protection syncs in well under a millisecond; a commit waits for two syncs", "%s",
			seen)
	}
	return ok(check, "%s", seen)
}

func classifyKernel(k Kernel) Finding {
	if !k.atLeast(5, 4) {
		return warn("kernel", "take a kernel that is still maintained, 5.4 or later", "Linux %s", k.Release)
	}
	return ok("kernel", "Linux %s", k.Release)
}

func classifyClock(c Clock) Finding {
	const check = "clock"
	const advice = "run a time daemon (timedatectl set-ntp true, or chrony): tokens and signatures carry times"
	switch {
	case !c.Synchronised:
		return warn(check, advice, "not synchronised")
	case c.MaxError > clockMayMiss:
		return warn(check, advice, "may be off by %s", short(c.MaxError))
	}
	return ok(check, "synchronised, off by %s at most", short(c.MaxError))
}

func classifySwap(in Inputs, areas []SwapArea, g Group, lockable bool) Finding {
	const check = "swap"
	var size int64
	for _, a := range areas {
		if !a.Compressed() {
			size += a.Size
		}
	}
	switch {
	case size == 0 && len(areas) > 0:
		return ok(check, "in compressed memory only")
	case size == 0:
		return ok(check, "none")
	case g.Swap == -1:
		return ok(check, "%s, but none for this control group", bytesText(size))
	case in.Amnesia && in.AllowSwap:
		return warn(check, "swapoff -a, or encrypt it", "%s on disk, by amnesia.allow_swap", bytesText(size))
	case in.Amnesia && lockable:
		return ok(check, "%s on disk, memory can be locked", bytesText(size))
	case in.Amnesia:
		return bad(check,
			"swapoff -a, or MemorySwapMax=0 or LimitMEMLOCK=infinity in the unit, or set amnesia.allow_swap",
			"%s on disk may keep data that must not be stored", bytesText(size))
	}
	return ok(check, "%s", bytesText(size))
}

func classifyMemory(in Inputs, m Memory, g Group) Finding {
	const check = "memory"
	room := m.Total
	seen := fmt.Sprintf("%s, %s available", bytesText(m.Total), bytesText(m.Available))
	if g.Memory > 0 && g.Memory < room {
		room = g.Memory
		seen = fmt.Sprintf("%s for this control group", bytesText(room))
	}
	if in.Heap > 0 {
		seen += fmt.Sprintf("; %s of them for Go's heap, %s for the ledger's rows", bytesText(in.Heap),
			bytesText(in.Rows))
	}
	need := int64(littleMemory)
	if in.Amnesia {
		need += in.MaxBytes
	}
	switch {
	case in.Amnesia && room < need:
		return bad(check, "lower amnesia.max_bytes, or give it more memory", "%s, and the database alone may take %s",
			seen, bytesText(in.MaxBytes))
	case room < need:
		return warn(check, "give it "+bytesText(need)+" or more", "%s", seen)
	case m.Available > 0 && min(m.Available, room) < need:
		return warn(check, "see what else takes memory on this machine", "%s", seen)
	}
	return ok(check, "%s", seen)
}

func classifyFiles(in Inputs, l Limits) Finding {
	const check = "open_files"
	need := uint64(max(in.MaxConns, 0)) + spareFiles
	if l.FilesHard < need {
		return bad(check, fmt.Sprintf("set LimitNOFILE=%d in the unit (ulimit -Hn), or lower server.max_conns", need),
			"%d at most, server.max_conns needs %d", l.FilesHard, need)
	}
	return ok(check, "%d", l.FilesHard)
}

func classifyCPU(l Limits) Finding {
	const check = "cpu"
	if l.Group.CPUs > 0 && l.Group.CPUs <= 1 {
		return warn(check, "give it more than one core: every request waits while it is throttled",
			"a quota of %.3g cores", l.Group.CPUs)
	}
	if l.Group.CPUs > 0 {
		return ok(check, "%d in use, a quota of %.3g cores", l.Cores, l.Group.CPUs)
	}
	return ok(check, "%d in use", l.Cores)
}

func classifyBacklog(n int64) Finding {
	if n < fewPending {
		return warn("somaxconn", "sysctl -w net.core.somaxconn=4096", "%d connections may wait to be accepted", n)
	}
	return ok("somaxconn", "%d", n)
}

// bytesText formats n for people, in whole units from ten units on.
func bytesText(n int64) string {
	for _, u := range []int64{1 << 40, 1 << 30, 1 << 20, 1 << 10} {
		if n >= 10*u {
			n = n / u * u
			break
		}
	}
	return unit.Size(n).String()
}

// short rounds d to about three digits.
func short(d time.Duration) string {
	for _, u := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= u {
			return d.Round(u / 100).String()
		}
	}
	return d.String()
}
