package host

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

const mountinfo = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/root rw,discard
31 27 0:29 / /mnt/with\040space rw - tmpfs tmpfs rw,size=10k
32 27 0:30 /box /sys/fs/cgroup rw - cgroup2 cgroup2 rw
33 27 0:31 / /mnt rw - nfs4 server:/export rw
34 27 0:32 / /mnt rw - xfs /dev/sdb rw
`

func TestParseMounts(t *testing.T) {
	all, err := parseMounts(strings.NewReader(mountinfo))
	if err != nil || len(all) != 6 {
		t.Fatalf("%d mounts, %v", len(all), err)
	}
	want := mount{Root: "/", Point: "/", Type: "ext4", Source: "/dev/root", Super: "rw,discard"}
	if all[1] != want {
		t.Errorf("%+v", all[1])
	}
	for name, source := range map[string]string{
		"/": "/dev/root", "/var/lib": "/dev/root", "/mnt": "/dev/sdb", "/mnt/a": "/dev/sdb", "/mntx": "/dev/root", "/mnt/with space/x": "tmpfs",
	} {
		if m, ok := mountOf(all, name); !ok || m.Source != source {
			t.Errorf("%s is on %q, want %q", name, m.Source, source)
		}
	}
	m, err := parseMounts(strings.NewReader("31 27 0:29 / /mnt rw,relatime - tmpfs  rw,size=10k\n"))
	if err != nil || len(m) != 1 || m[0].Type != "tmpfs" || m[0].Source != "" || m[0].Super != "rw,size=10k" {
		t.Errorf("a mount without a source: %+v, %v", m, err)
	}
	for _, text := range []string{"x\n", "1 2 3 4 5 6 7 8 9\n", "1 2 3 4 5 6 - ext4 x\n1 2"} {
		if _, err := parseMounts(strings.NewReader(text)); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	if _, ok := mountOf(nil, "/"); ok {
		t.Error("a mount out of nothing")
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{`a\040b`: "a b", `\134`: `\`, `\9`: `\9`, `\400`: `\400`, `x\`: `x\`, `\011\012`: "\t\n"} {
		if got := unescape(in); got != want {
			t.Errorf("%q gives %q, want %q", in, got, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	m, err := parseMemory(
		strings.NewReader(
			"MemTotal:       24684096 kB\nMemFree: 1 kB\nMemAvailable:   1000 kB\nHugePages_Total: 0\nBroken: x kB\n",
		),
	)
	if err != nil || m.Total != 24684096<<10 || m.Available != 1000<<10 {
		t.Errorf("%+v, %v", m, err)
	}
	for _, text := range []string{"", "MemFree: 1 kB\n", "MemTotal: 99999999999999999999 kB\n", "MemTotal: -1 kB\n"} {
		if m, err := parseMemory(strings.NewReader(text)); err == nil {
			t.Errorf("%q gives %+v", text, m)
		}
	}
}

func TestParseSwap(t *testing.T) {
	const head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
	areas, err := parseSwap(
		strings.NewReader(
			head + "/dev/sda2 partition 2097148 12 -2\n/swap\\040file file 1024 0 -3\n/dev/zram0 partition 4096 0 100\n",
		),
	)
	want := []SwapArea{
		{Name: "/dev/sda2", Size: 2097148 << 10},
		{Name: "/swap file", Size: 1 << 20},
		{Name: "/dev/zram0", Size: 4 << 20},
	}
	if err != nil || !reflect.DeepEqual(areas, want) {
		t.Errorf("%+v, %v", areas, err)
	}
	if areas[0].Compressed() || !areas[2].Compressed() {
		t.Error("zram is memory, a partition is not")
	}
	if areas, err := parseSwap(strings.NewReader(head)); err != nil || len(areas) != 0 {
		t.Errorf("no swap: %+v, %v", areas, err)
	}
	for _, text := range []string{"/dev/sda2 partition\n", "/dev/sda2 partition x 0 1\n", "/dev/sda2 partition -5 1 1\n"} {
		if _, err := parseSwap(strings.NewReader(text)); err == nil {
			t.Errorf("%q passes", text)
		}
	}
}

func TestParseKernel(t *testing.T) {
	for release, want := range map[string]Kernel{
		"6.1.0-18-amd64": {Major: 6, Minor: 1}, "5.10.94": {Major: 5, Minor: 10, Patch: 94}, "5.15.27+rpt-rpi-v8": {Major: 5, Minor: 15, Patch: 27},
		"6.18-rc1": {Major: 6, Minor: 18}, "4.4.": {Major: 4, Minor: 4}, "5.4.0.1": {Major: 5, Minor: 4},
	} {
		want.Release = release
		if got, err := parseKernel(release); err != nil || got != want {
			t.Errorf("%s: %+v, %v", release, got, err)
		}
	}
	for _, release := range []string{"", "6", "x.y", "6.x", ".1", "99999.1", strings.Repeat("9", 200)} {
		if k, err := parseKernel(release); err == nil || len(err.Error()) > 200 {
			t.Errorf("%q gives %+v, %v", release, k, err)
		}
	}
}

func TestFastCommitFixed(t *testing.T) {
	for release, want := range map[string]bool{
		"4.19.0": true, "5.4.200": true, "5.9.16": true, "5.10.93": false, "5.10.94": true, "5.11.0": false, "5.15.26": false, "5.15.27": true,
		"5.16.20": false, "5.17.0": true, "6.1.0": true,
	} {
		k, err := parseKernel(release)
		if err != nil || k.FastCommitFixed() != want {
			t.Errorf("%s: %v, %v", release, k.FastCommitFixed(), err)
		}
	}
}

// superblock is the front of an ext4 file system.
func superblock(magic uint16, compat uint32) []byte {
	b := make([]byte, superAt+superSize)
	binary.LittleEndian.PutUint16(b[superAt+superMagicAt:], magic)
	binary.LittleEndian.PutUint32(b[superAt+compatAt:], compat)
	return b
}

func TestParseFastCommit(t *testing.T) {
	for compat, want := range map[uint32]bool{0: false, compatFast: true, 0x3c: false, 0x3c | compatFast: true} {
		if got, err := parseFastCommit(bytes.NewReader(superblock(superMagic, compat))); err != nil || got != want {
			t.Errorf("%#x: %v, %v", compat, got, err)
		}
	}
	for _, b := range [][]byte{nil, superblock(0, compatFast), superblock(superMagic, 0)[:1500]} {
		if _, err := parseFastCommit(bytes.NewReader(b)); err == nil {
			t.Errorf("%d bytes pass", len(b))
		}
	}
}

// Parsers never panic, and their results are within bounds.
func FuzzParsers(f *testing.F) {
	f.Add(mountinfo)
	f.Add("      -  0")
	f.Add("0::/a\n9:cpu,cpuacct:/b\n")
	f.Add("MemTotal: 5 kB\n")
	f.Add("Filename\n/dev/sda2 partition 5 5 -2\n")
	f.Add("5.10.94-x")
	f.Add(string(superblock(superMagic, compatFast)))
	f.Fuzz(func(t *testing.T, text string) {
		all, _ := parseMounts(strings.NewReader(text))
		for _, m := range all {
			if m.Type == "" || m.Point == "" {
				t.Errorf("%q gives %+v", text, m)
			}
		}
		members, _ := parseMemberships(strings.NewReader(text))
		for _, m := range members {
			groupDirs(m, all)
		}
		if m, err := parseMemory(strings.NewReader(text)); err == nil && (m.Total <= 0 || m.Total%1024 != 0) {
			t.Errorf("%q gives %+v", text, m)
		}
		areas, _ := parseSwap(strings.NewReader(text))
		for _, a := range areas {
			if a.Size < 0 {
				t.Errorf("%q gives %+v", text, a)
			}
		}
		if k, err := parseKernel(text); err == nil && (k.Major < 0 || k.Release != text) {
			t.Errorf("%q gives %+v", text, k)
		}
		_, _ = parseFastCommit(strings.NewReader(text))
	})
}
