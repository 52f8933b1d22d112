package fs

import (
	"golang.org/x/sys/unix"
)

// onNetwork reports whether other machines may change the file system that holds a folder. An unknown kind of file
// system counts as local.
func onNetwork(t tree) bool {
	const lustre, gpfs, beegfs = 0x0BD00BD0, 0x47504653, 0x19830326
	var st unix.Statfs_t
	if err := t.Control(func(fd int) error { return unix.Fstatfs(fd, &st) }); err != nil {
		return true
	}
	switch uint32(st.Type) {
	case unix.NFS_SUPER_MAGIC, unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC, unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC,
		unix.CEPH_SUPER_MAGIC, unix.CODA_SUPER_MAGIC, unix.NCP_SUPER_MAGIC, unix.OCFS2_SUPER_MAGIC, unix.V9FS_MAGIC, unix.FUSE_SUPER_MAGIC,
		lustre, gpfs, beegfs:
		return true
	}
	return false
}
