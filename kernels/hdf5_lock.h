/* One lock for every HDF5 call of the process: the library is usually built without thread safety.
 *
 * Take it around a group of HDF5 calls, never around anything that may wait for another thread.
 * Taking it also turns off HDF5's habit of printing its error stack. */
#ifndef KVANT_KERNELS_HDF5_LOCK_H
#define KVANT_KERNELS_HDF5_LOCK_H

void kv_hdf5_lock(void);
void kv_hdf5_unlock(void);

#endif
