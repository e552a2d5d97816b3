package store

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"ronbox/appliance/unit"
)

// Config is the [store] section.
type Config struct {
	MaxBytes      unit.Size     `toml:"max_bytes"`       // the file never grows beyond it; also the size of the memory map
	GroupMax      int           `toml:"group_max"`       // commands in one transaction
	GroupBytes    unit.Size     `toml:"group_bytes"`     // a group is closed once its commands reach this size
	CheckOnCrash  bool          `toml:"check_on_crash"`  // walk all pages at boot after an unclean stop
	CheckMaxBytes unit.Size     `toml:"check_max_bytes"` // CheckOnCrash leaves larger files alone
	LockTimeout   unit.Duration `toml:"lock_timeout"`    // how long Open waits for another process to let go of the file
	AllowNetwork  bool          `toml:"allow_network"`   // open a file on NFS, CIFS, 9p or FUSE nevertheless
}

// Bounds of one command's writes. A key and a value are checked when the command fills its Writes.
const (
	MaxKey   = 512            // bytes
	MaxValue = 1<<20 + 64<<10 // bytes: a payload of 1 MiB and its frame
)

// PageSize of every file, in bytes: fixed, so that a snapshot opens on hosts with larger pages.
const PageSize = 4096

const (
	allocSize = 16 << 20 // growth step of the file, bytes; also the slack it wants below MaxBytes
	auditRows = 100_000  // length of the audit ring
	commandSz = 1 << 10  // what a command without a Size method counts for, bytes
	minBytes  = 4 * allocSize
	maxBytes  = 1 << (30 + (strconv.IntSize-32)/2) // what a process can map: 64 TiB, or 1 GiB where the address space is small
)

// DefaultConfig holds every default.
func DefaultConfig() Config {
	return Config{
		MaxBytes:      8 << (30 - 3*(64-strconv.IntSize)/32), // 1 GiB where the address space is small
		GroupMax:      4096,
		GroupBytes:    4 << 20,
		CheckOnCrash:  true,
		CheckMaxBytes: 1 << 30,
		LockTimeout:   unit.Duration(2 * time.Second),
	}
}

// Validate joins all faults.
func (c Config) Validate() error {
	var errs []error
	if c.MaxBytes < minBytes || c.MaxBytes > maxBytes {
		errs = append(errs, fmt.Errorf("store.max_bytes: %s is not within %s and %s", c.MaxBytes, unit.Size(minBytes), unit.Size(maxBytes)))
	}
	if c.GroupMax < 1 || c.GroupMax > 4096 {
		errs = append(errs, fmt.Errorf("store.group_max: %d is not within 1 and 4096", c.GroupMax))
	}
	if c.GroupBytes < 1<<10 || c.GroupBytes > 64<<20 {
		errs = append(errs, fmt.Errorf("store.group_bytes: %s is not within 1KiB and 64MiB", c.GroupBytes))
	}
	if c.LockTimeout < 0 || c.LockTimeout.D() > time.Minute {
		errs = append(errs, fmt.Errorf("store.lock_timeout: %s is not within 0s and 1m", c.LockTimeout))
	}
	return errors.Join(errs...)
}
