package host

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestClassify(t *testing.T) {
	const gib = 1 << 30
	old, fixed := Kernel{Release: "5.12.1", Major: 5, Minor: 12}, Kernel{Release: "6.1.0", Major: 6, Minor: 1}
	disk := func(kind string) FileSystem { return FileSystem{Type: kind, Source: "/dev/sda1", FastCommit: No} }
	fast := func(a Answer) FileSystem { f := disk("ext4"); f.FastCommit = a; return f }
	nfs := FileSystem{Type: "nfs4", Source: "s:/x", Network: true}
	tmp := FileSystem{Type: "tmpfs", Source: "tmpfs", Memory: true}
	swap := []SwapArea{{Name: "/dev/sda2", Size: 2 * gib}}
	zram := []SwapArea{{Name: "/dev/zram0", Size: 2 * gib}}
	in := Inputs{Bind: "127.0.0.1:80", MaxBytes: 8 * gib, MinFree: gib, MaxConns: 1024}
	with := func(change func(*Inputs)) Inputs { c := in; change(&c); return c }
	amnesia := with(func(i *Inputs) { i.Amnesia = true })
	swapping := with(func(i *Inputs) { i.Amnesia, i.AllowSwap = true, true })
	running := with(func(i *Inputs) { i.Running = true })
	filled := with(func(i *Inputs) { i.Held = 7 * gib })
	remote := with(func(i *Inputs) { i.AllowNetwork = true })
	taken := &net.OpError{Err: os.NewSyscallError("bind", unix.EADDRINUSE)}
	for _, tt := range []struct {
		doc   string
		got   Finding
		level Level
		says  string // in Seen or Advice
	}{
		{"private folder", classifyFolder("/d", fs.ModeDir|0o700, 5, 5), OK, "/d (0700)"},
		{"folder others write to", classifyFolder("/d", fs.ModeDir|0o777, 5, 5), Bad, "chmod 700 /d"},
		{"folder others read", classifyFolder("/d", fs.ModeDir|0o755, 5, 5), Warn, "chmod 700 /d"},
		{"folder of another", classifyFolder("/d", fs.ModeDir|0o700, 5, 6), Warn, "uid 5"},
		{"folder of another, seen by root", classifyFolder("/d", fs.ModeDir|0o700, 5, 0), OK, ""},
		{"port free", classifyPort(in, nil), OK, "free"},
		{"port taken", classifyPort(in, taken), Bad, "RONBOX_SERVER__BIND"},
		{"port taken by the node", classifyPort(running, taken), OK, "running node"},
		{"port of the privileged", classifyPort(in, os.NewSyscallError("bind", unix.EACCES)), Bad, "CAP_NET_BIND_SERVICE"},
		{"no such address", classifyPort(in, errors.New("no such host")), Bad, "no such host"},
		{"local disk", classifyFileSystem(in, disk("xfs"), old), OK, "xfs on /dev/sda1"},
		{"unknown disk", classifyFileSystem(in, FileSystem{}, fixed), Warn, "cannot be told"},
		{"network disk", classifyFileSystem(in, nfs, fixed), Bad, "local disk"},
		{"network disk, allowed", classifyFileSystem(remote, nfs, fixed), Warn, "store.allow_network"},
		{"memory disk", classifyFileSystem(in, tmp, fixed), Warn, "lost"},
		{"memory disk for what is forgotten", classifyFileSystem(amnesia, tmp, fixed), OK, ""},
		{"fast commits, mended", classifyFileSystem(in, fast(Yes), fixed), OK, ""},
		{"fast commits, not mended", classifyFileSystem(in, fast(Yes), old), Bad, "tune2fs"},
		{"fast commits, who knows", classifyFileSystem(in, fast(Unknown), old), Warn, "dumpe2fs"},
		{"no fast commits", classifyFileSystem(in, fast(No), old), OK, ""},
		{"much space", classifySpace(in, FileSystem{Free: 20 * gib, Total: 40 * gib}), OK, "20GiB free of 40GiB"},
		{"space for some growth", classifySpace(in, FileSystem{Free: 2 * gib, Total: 40 * gib}), Warn, "may grow to 8GiB"},
		{"no space", classifySpace(filled, FileSystem{Free: gib / 2, Total: 40 * gib}), Bad, "store.min_free"},
		{"space beside a large database", classifySpace(filled, FileSystem{Free: 2 * gib, Total: 40 * gib}), OK, "2GiB free"},
		{"a small disk", classifySpace(in, FileSystem{Free: gib / 2, Total: gib}), Warn, "may grow to 8GiB"},
		{"a small disk, full", classifySpace(in, FileSystem{Free: 1 << 20, Total: gib}), Bad, "kept free are 16MiB"},
		{"fast disk", classifySync(Latency{Median: 90 * time.Microsecond, Most: time.Millisecond, Samples: 32}), OK, "90µs"},
		{"rotating disk", classifySync(Latency{Median: slowSync}), Warn, "two syncs"},
		{"hopeless disk", classifySync(Latency{Median: hopelessSync}), Bad, "another disk"},
		{"kernel", classifyKernel(fixed), OK, "Linux 6.1.0"},
		{"old kernel", classifyKernel(Kernel{Release: "4.19", Major: 4, Minor: 19}), Warn, "5.4"},
		{"clock", classifyClock(Clock{Synchronised: true, MaxError: 20 * time.Millisecond}), OK, "20ms"},
		{"clock by itself", classifyClock(Clock{}), Warn, "time daemon"},
		{"clock far off", classifyClock(Clock{Synchronised: true, MaxError: 16 * time.Second}), Warn, "16s"},
		{"no swap", classifySwap(amnesia, nil, Group{}, false), OK, "none"},
		{"swap", classifySwap(in, swap, Group{}, false), OK, "2GiB"},
		{"swap of what is forgotten", classifySwap(amnesia, swap, Group{}, false), Bad, "amnesia.allow_swap"},
		{"swap of what is forgotten, allowed", classifySwap(swapping, swap, Group{}, false), Warn, "swapoff"},
		{"swap not for us", classifySwap(amnesia, swap, Group{Swap: -1}, false), OK, "none for this"},
		{"swap of what can be locked", classifySwap(amnesia, swap, Group{}, true), OK, "locked"},
		{"compressed swap", classifySwap(amnesia, zram, Group{}, false), OK, "compressed"},
		{"memory", classifyMemory(in, Memory{Total: 4 * gib, Available: 2 * gib}, Group{}), OK, "4GiB, 2GiB available"},
		{"little memory", classifyMemory(in, Memory{Total: gib, Available: gib}, Group{Memory: 128 << 20}), Warn, "128MiB for this control group"},
		{"memory taken by others", classifyMemory(in, Memory{Total: gib, Available: 1 << 20}, Group{}), Warn, "what else"},
		{"memory for what is forgotten", classifyMemory(amnesia, Memory{Total: 4 * gib, Available: 4 * gib}, Group{}), Bad, "amnesia.max_bytes"},
		{"files", classifyFiles(in, Limits{Files: 1024, FilesHard: 20000}), OK, "20000"},
		{"few files", classifyFiles(in, Limits{Files: 1024, FilesHard: 1024}), Bad, "LimitNOFILE=1344"},
		{"cores", classifyCPU(Limits{Cores: 2}), OK, "2 in use"},
		{"a quota", classifyCPU(Limits{Cores: 2, Group: Group{CPUs: 1.5}}), OK, "1.5 cores"},
		{"a quota that throttles", classifyCPU(Limits{Cores: 1, Group: Group{CPUs: 1}}), Warn, "throttled"},
		{"backlog", classifyBacklog(4096), OK, "4096"},
		{"short backlog", classifyBacklog(128), Warn, "sysctl"},
	} {
		if tt.got.Level != tt.level || !strings.Contains(tt.got.Seen+" "+tt.got.Advice, tt.says) {
			t.Errorf("%s: %+v", tt.doc, tt.got)
		}
		if (tt.got.Advice == "") != (tt.got.Level == OK) || tt.got.Seen == "" || tt.got.Check == "" {
			t.Errorf("%s: a finding without words: %+v", tt.doc, tt.got)
		}
	}
}

func TestTexts(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 512: "512B", 9 << 10: "9KiB", 10<<10 + 5: "10KiB", 71<<30 + 12345: "71GiB", 3 << 30: "3GiB", 12 << 40: "12TiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "0s", 999: "999ns", 92345: "92.35µs", 1234567: "1.23ms", 16 * time.Second: "16s"} {
		if got := short(d); got != want {
			t.Errorf("%d is %s, want %s", d, got, want)
		}
	}
}
