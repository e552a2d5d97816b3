package lock

import "testing"

func TestLockHolder(t *testing.T) {
	const table = "1: POSIX  ADVISORY  WRITE 11 fe:00:77 0 EOF\n" +
		"2: FLOCK  ADVISORY  WRITE 22 fe:00:78 0 EOF\n" +
		"3: FLOCK  ADVISORY  WRITE 33 00:1b:77 0 EOF\n" +
		"3: -> FLOCK  ADVISORY  WRITE 34 fe:00:77 0 EOF\n" +
		"4: FLOCK  ADVISORY  READ 44 fe:00:77 0 EOF\ngarbage\n"
	for _, tt := range []struct {
		dev, inode uint64
		want       int
	}{{0xfe00, 77, 44}, {0x1b, 77, 33}, {0x55, 77, 44}, {0xfe00, 78, 22}, {0xfe00, 7, 0}} {
		if got := lockHolder([]byte(table), tt.dev, tt.inode); got != tt.want {
			t.Errorf("%x:%d is held by %d, want %d", tt.dev, tt.inode, got, tt.want)
		}
	}
}
