/* The lock around HDF5: see hdf5_lock.h. */
#include "kernels/hdf5_lock.h"

#include <hdf5.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void kv_hdf5_lock(void)
{
    pthread_mutex_lock(&lock);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void kv_hdf5_unlock(void)
{
    pthread_mutex_unlock(&lock);
}
