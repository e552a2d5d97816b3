package hosttest

import (
	"flag"
	"os"
	"syscall"
)

const (
	memory     = "/dev/shm"
	memoryType = 0x01021994 // TMPFS_MAGIC
	memoryRoom = 4 << 30    // bytes: the tests of a package take a small part, and a node wants some to be free
)

// InMemory puts the temporary folders of a test process in memory, where each sync is free, if
// there is a tmpfs with room and TMPDIR names no other place. Benchmarks keep the disk, and it
// returns where that is for tests of kills and power cuts.
func InMemory() (disk string) {
	if !flag.Parsed() {
		flag.Parse()
	}
	disk = os.TempDir()
	if os.Getenv("TMPDIR") != "" || flag.Lookup("test.bench").Value.String() != "" {
		return disk
	}
	var st syscall.Statfs_t
	if err := syscall.Statfs(memory, &st); err == nil && st.Type == memoryType &&
		st.Bavail*uint64(st.Bsize) >= memoryRoom {
		_ = os.Setenv("TMPDIR", memory)
	}
	return disk
}
