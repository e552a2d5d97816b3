package host

import (
	"math"
	"testing"
	"testing/fstest"
)

// tree is a machine made of files.
func tree(files map[string]string) host {
	out := fstest.MapFS{}
	for name, text := range files {
		out[name] = &fstest.MapFile{Data: []byte(text + "\n")}
	}
	return host{files: out}
}

const (
	mounts2 = "32 27 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
	mounts1 = "33 27 0:31 / /cg/memory rw - cgroup cgroup rw,memory\n34 27 0:32 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct"
	boxed   = "32 27 0:30 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw"
)

// The tightest bound of a group and those above it holds, in both versions.
func TestGroup(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		files map[string]string
		want  Group
	}{
		{"no bounds", map[string]string{
			"proc/self/mountinfo": mounts2, "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "max", "sys/fs/cgroup/cpu.max": "max 100000",
		}, Group{}},
		{"its own bounds", map[string]string{
			"proc/self/mountinfo": mounts2, "proc/self/cgroup": "0::/system.slice/ronbox.service",
			"sys/fs/cgroup/system.slice/ronbox.service/memory.max":      "536870912",
			"sys/fs/cgroup/system.slice/ronbox.service/cpu.max":         "50000 100000",
			"sys/fs/cgroup/system.slice/ronbox.service/memory.swap.max": "0",
		}, Group{Memory: 512 << 20, CPUs: 0.5, Swap: -1}},
		{"tighter ones above it", map[string]string{
			"proc/self/mountinfo": mounts2, "proc/self/cgroup": "0::/a/b", "sys/fs/cgroup/a/b/memory.max": "900000000", "sys/fs/cgroup/a/memory.max": "800000000",
			"sys/fs/cgroup/a/b/cpu.max": "300000 100000", "sys/fs/cgroup/a/cpu.max": "150000 100000", "sys/fs/cgroup/a/memory.swap.max": "1000",
		}, Group{Memory: 800000000, CPUs: 1.5, Swap: 1000}},
		{"in a container", map[string]string{
			"proc/self/mountinfo": boxed, "proc/self/cgroup": "0::/docker/abc", "sys/fs/cgroup/memory.max": "268435456", "sys/fs/cgroup/cpu.max": "200000 100000",
		}, Group{Memory: 256 << 20, CPUs: 2}},
		{"version 1", map[string]string{
			"proc/self/mountinfo": mounts1, "proc/self/cgroup": "4:memory:/box\n1:cpu,cpuacct:/box\n0::/",
			"cg/memory/box/memory.limit_in_bytes": "1073741824", "cg/memory/memory.limit_in_bytes": "9223372036854771712",
			"cg/cpu/box/cpu.cfs_quota_us": "25000", "cg/cpu/box/cpu.cfs_period_us": "100000", "cg/cpu/cpu.cfs_quota_us": "-1", "cg/cpu/cpu.cfs_period_us": "100000",
		}, Group{Memory: 1 << 30, CPUs: 0.25}},
		{"a mount of the group's own, whose name begins its neighbour's", map[string]string{
			"proc/self/mountinfo": "32 27 0:30 /a /cg/a rw - cgroup2 cgroup2 rw\n33 27 0:30 / /cg/all rw - cgroup2 cgroup2 rw", "proc/self/cgroup": "0::/ab/c",
			"cg/a/memory.max": "7", "cg/a/b/c/memory.max": "5", "cg/all/ab/c/memory.max": "1000000",
		}, Group{Memory: 1000000}},
		{"a group outside of all mounts", map[string]string{
			"proc/self/mountinfo": boxed, "proc/self/cgroup": "0::/../other", "sys/fs/cgroup/memory.max": "1000000",
		}, Group{Memory: 1000000}},
		{"hybrid", map[string]string{
			"proc/self/mountinfo": "32 27 0:30 / /cg/unified rw - cgroup2 cgroup2 rw\n" + mounts1, "proc/self/cgroup": "4:memory:/box\n1:name=systemd:/x\n0::/box",
			"cg/memory/box/memory.limit_in_bytes": "1073741824", "cg/unified/box/cgroup.procs": "1",
		}, Group{Memory: 1 << 30}},
		{"throttled above a bound", map[string]string{
			"proc/self/mountinfo": mounts2, "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "1000000", "sys/fs/cgroup/memory.high": "900000",
		}, Group{Memory: 900000}},
		{"a kernel without control groups", map[string]string{"proc/self/mountinfo": "1 2 3 / / rw - ext4 x rw"}, Group{}},
		{"nonsense", map[string]string{
			"proc/self/mountinfo": mounts2, "proc/self/cgroup": "0::/", "sys/fs/cgroup/memory.max": "much", "sys/fs/cgroup/cpu.max": "1",
		}, Group{}},
		{"not mounted", map[string]string{"proc/self/mountinfo": "1 2 3 / / rw - ext4 x rw", "proc/self/cgroup": "0::/"}, Group{}},
	} {
		got, err := tree(tt.files).group()
		if err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", tt.doc, got, err, tt.want)
		}
	}
	for _, files := range []map[string]string{
		{}, {"proc/self/cgroup": "0::/"}, {"proc/self/cgroup": "nothing", "proc/self/mountinfo": mounts2}, {"proc/self/cgroup": "0::/", "proc/self/mountinfo": "x"},
	} {
		if g, err := tree(files).group(); err == nil || g != (Group{}) {
			t.Errorf("%v gives %+v", files, g)
		}
	}
}

func TestCores(t *testing.T) {
	for _, bad := range [][2]string{{"max", "100000"}, {"-1", "100000"}, {"1", "0"}, {"NaN", "1"}, {"1", "NaN"}, {"+Inf", "1"}, {"", ""}} {
		if got := cores(bad[0], bad[1]); got != 0 || math.IsNaN(got) {
			t.Errorf("%v gives %v cores", bad, got)
		}
	}
}

func TestNumber(t *testing.T) {
	h := tree(map[string]string{"n": " 4096 ", "x": "many"})
	if n, err := h.number("n"); err != nil || n != 4096 {
		t.Errorf("%d, %v", n, err)
	}
	for _, name := range []string{"x", "none"} {
		if _, err := h.number(name); err == nil {
			t.Errorf("%s passes", name)
		}
	}
	if m, err := h.memory(); err == nil {
		t.Errorf("no meminfo gives %+v", m)
	}
	if a, err := h.swap(); err == nil {
		t.Errorf("no swaps gives %+v", a)
	}
}

// Compressed memory that is written back to a disk is no memory.
func TestCompressedSwapWithADisk(t *testing.T) {
	h := tree(map[string]string{
		"proc/swaps":                  "Filename Type Size Used Priority\n/dev/zram0 partition 4096 0 5\n/dev/zram1 partition 4096 0 5\n/dev/zram2 partition 4096 0 5",
		"sys/block/zram0/backing_dev": "none",
		"sys/block/zram1/backing_dev": "/dev/sda5",
	})
	areas, err := h.swap()
	if err != nil || len(areas) != 3 || !areas[0].Compressed() || areas[1].Compressed() || !areas[2].Compressed() {
		t.Errorf("%+v, %v", areas, err)
	}
}
