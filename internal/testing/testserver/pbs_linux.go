package testserver

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
)

// NewPBS starts a Slurm whose commands have PBS's words beside Slurm's: qsub, qstat and qdel are Debian's slurm-wlm-torque. They are unpacked
// into a folder of their own, so that they are not in the way of Grid Engine's.
func NewPBS(tb TB, nodes []SlurmNode) *Slurm {
	tb.Helper()
	folder, err := pbsFolder()
	if err == nil && !PBSInstalled() {
		err = unpackPBS(folder)
	}
	if err != nil {
		tb.Skipf("no words of PBS: %v (Debian's slurm-wlm-torque has them)", err)
	}
	s := NewSlurm(tb, nodes)
	// qsub looks for sbatch beside itself.
	sbatch, err := exec.LookPath("sbatch")
	err = errors.Join(err, os.Mkdir(s.path("bin"), 0o755), os.Symlink(sbatch, s.path("bin", "sbatch")))
	for _, name := range []string{"qsub", "qstat", "qdel"} {
		program, read := os.ReadFile(filepath.Join(folder, "usr/bin", name))
		err = errors.Join(err, read, os.WriteFile(s.path("bin", name), program, 0o755))
	}
	libraries, _ := filepath.Glob(filepath.Join(folder, "usr/lib/*/libslurm.so.*"))
	modules, _ := filepath.Glob(filepath.Join(folder, "usr/lib/*/perl5/*"))
	if err != nil || len(libraries) == 0 || len(modules) == 0 {
		tb.Fatalf("start PBS: %s has not all that it needs: %v", folder, err)
	}
	s.env = append(s.env, "PATH="+s.path("bin")+":"+os.Getenv("PATH"), "PERL5LIB="+modules[0], "LD_LIBRARY_PATH="+filepath.Dir(libraries[0]))
	return s
}

// PBSInstalled tells whether its programs are there, and Slurm's.
func PBSInstalled() bool {
	folder, err := pbsFolder()
	if err == nil {
		_, err = os.Stat(folder)
	}
	return err == nil && slurmMissing() == nil
}

func pbsFolder() (string, error) {
	cache, err := cacheFolder()
	return filepath.Join(cache, "pbs"), err
}

// slurmLibrary is the package of Slurm's own library, whose name has a number.
var slurmLibrary = regexp.MustCompile(`libslurm[0-9]+`)

func unpackPBS(folder string) error {
	if os.Geteuid() != 0 {
		return fs.ErrPermission
	}
	depends, err := exec.Command("apt-cache", "depends", "libslurm-perl").Output()
	if err != nil {
		return err
	}
	packages := []string{"slurm-wlm-torque", "libslurm-perl", "libslurmdb-perl"}
	if library := slurmLibrary.FindString(string(depends)); library != "" {
		packages = append(packages, library)
	}
	return unpackPackages(folder, packages...)
}
