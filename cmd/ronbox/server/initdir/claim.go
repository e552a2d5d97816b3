package initdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines/cluster/member"
	"ronbox/store/lock"
)

// claimed is a directory that only this init may fill: it holds the lock of the mark file.
type claimed struct {
	dir  string
	made bool        // the directory was created
	mode fs.FileMode // its previous permissions, if it existed
	mark *os.File
}

// claim creates dir, or takes it if it is empty except for the remains of a killed init, restricts
// it to its owner, and writes the secret.
func claim(dir string) (claimed, error) {
	c := claimed{dir: dir}
	if err := c.acquire(); err != nil {
		return c, err
	}
	if _, err := tokens.MakeSecret(filepath.Join(dir, config.SecretName)); err != nil {
		return c, errors.Join(err, c.undo())
	}
	return c, nil
}

func (c *claimed) acquire() error {
	info, err := os.Stat(c.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.made = true
		err = tokens.MakeDir(c.dir)
	case err == nil:
		c.mode = info.Mode().Perm()
	}
	if err != nil {
		return err
	}
	if err := c.clear(); err != nil {
		return err
	}
	return os.Chmod(c.dir, 0o700)
}

// clear locks the mark file and removes the remains of a killed init. It returns ErrNotEmpty if the
// directory holds anything else.
func (c *claimed) clear() error {
	if there, err := c.others(); err != nil || len(there) > 0 && !exists(filepath.Join(c.dir, config.UnfinishedName)) {
		return errors.Join(err, c.notEmpty(err == nil))
	}
	fresh, err := c.lock()
	if err != nil {
		return err
	}
	left, err := c.others()
	if err == nil && fresh && len(left) > 0 { // another init has finished in between, or a join has begun
		return errors.Join(c.notEmpty(true), os.Remove(c.mark.Name()), c.mark.Close())
	}
	if err == nil && slices.ContainsFunc(left, func(name string) bool { return !slices.Contains(initMakes(), name) }) {
		err = c.notEmpty(true)
	}
	for i := 0; i < len(left) && err == nil; i++ {
		err = os.RemoveAll(filepath.Join(c.dir, left[i]))
	}
	if err != nil {
		return errors.Join(err, c.mark.Close())
	}
	return nil
}

func (c *claimed) notEmpty(is bool) error {
	if !is {
		return nil
	}
	return fmt.Errorf("%s: %w", c.dir, ErrNotEmpty)
}

// others returns the names in the directory except the mark and those that an empty directory may
// have; see [member.Dir.Contents].
func (c *claimed) others() ([]string, error) {
	names, err := member.At(c.dir).Contents()
	return slices.DeleteFunc(names, func(name string) bool { return name == config.UnfinishedName }), err
}

// initMakes returns the names that init may have created in a directory.
func initMakes() []string {
	return []string{
		config.SecretName,
		config.FileName,
		config.DatabaseName,
		config.DatabaseName + ".new",
		config.TokenName,
		filepath.Dir(config.SignerName),
		config.RewarderName,
		config.PacksName,
		config.EdgeName,
		systemd.UnitName,
		systemd.HTTPSocketName,
		systemd.AdminSocketName,
		systemd.SysusersName,
	}
}

// lock creates and locks the mark. fresh reports whether it did not exist.
func (c *claimed) lock() (fresh bool, err error) {
	path := filepath.Join(c.dir, config.UnfinishedName)
	c.mark, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if fresh = err == nil; errors.Is(err, fs.ErrExist) {
		c.mark, err = os.OpenFile(path, os.O_RDWR, 0)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return false, c.notEmpty(true) // another init has just finished
	}
	if err != nil {
		return false, err
	}
	if lock.File(c.mark, true, 0) != nil || !c.holds(path) {
		return false, errors.Join(c.notEmpty(true), c.mark.Close()) // another init is running
	}
	return fresh, tokens.SyncDir(c.dir)
}

// holds reports whether the locked mark is still the file at path.
func (c *claimed) holds(path string) bool {
	now, err := os.Stat(path)
	if err != nil {
		return false
	}
	own, err := c.mark.Stat()
	return err == nil && os.SameFile(own, now)
}

// done removes the mark: the directory is a node.
func (c *claimed) done() error {
	return errors.Join(os.Remove(c.mark.Name()), tokens.SyncDir(c.dir), c.mark.Close())
}

// undo removes the files that init created. The mark goes last, so that no other init starts
// before.
func (c *claimed) undo() error {
	names, err := c.others()
	for _, name := range names {
		err = errors.Join(err, os.RemoveAll(filepath.Join(c.dir, name)))
	}
	if !c.made {
		err = errors.Join(err, os.Chmod(c.dir, c.mode))
	}
	err = errors.Join(err, os.Remove(c.mark.Name()), c.mark.Close())
	if c.made {
		err = errors.Join(err, os.Remove(c.dir))
	}
	return err
}
