"""Plain GEMM kernels, C = A @ B, as tutorials print them, with correct guards."""

NAIVE = """
extern "C" __global__ void k(int M, int N, int K, const float *A, const float *B, float *C) {
  int row = blockIdx.x * 32 + threadIdx.x, col = blockIdx.y * 32 + threadIdx.y;
  if (row < M && col < N) {
    float acc = 0.f;
    for (int i = 0; i < K; i++) acc += A[row * K + i] * B[i * N + col];
    C[row * N + col] = acc;
  }
}
"""

Y_FIRST = """
extern "C" __global__ void k(int M, int N, int K, const float *A, const float *B, float *C) {
  int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
  if (row < M && col < N) {
    float acc = 0.f;
    for (int i = 0; i < K; i++) acc += A[row * K + i] * B[i * N + col];
    C[row * N + col] = acc;
  }
}
"""

SHARED = """
constexpr int T = 32;
extern "C" __global__ void k(int M, int N, int K, const float *A, const float *B, float *C) {
  __shared__ float sa[T][T], sb[T][T];
  int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * T + tx, row = blockIdx.y * T + ty;
  float acc = 0.f;
  for (int k0 = 0; k0 < K; k0 += T) {
    sa[ty][tx] = (row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.f;
    sb[ty][tx] = (col < N && k0 + ty < K) ? B[(k0 + ty) * N + col] : 0.f;
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < T; i++) acc += sa[ty][i] * sb[i][tx];
    __syncthreads();  // the tile is free again
  }
  if (row < M && col < N) C[row * N + col] = acc;
}
"""

# BLOCK_SIZE 32, TILE 4, BK 32: 8 x 8 threads, 16 scattered scalars a thread and tile.
TILED = """
constexpr int BS = 32, T = 4, BK = 32;
extern "C" __global__ void k(int M, int N, int K, const float *A, const float *B, float *C) {
  __shared__ float sa[BS][BK], sb[BK][BS];
  int tx = threadIdx.x, ty = threadIdx.y;
  int row0 = blockIdx.y * BS + ty * T, col0 = blockIdx.x * BS + tx * T;
  float acc[T][T] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    #pragma unroll
    for (int i = 0; i < T; i++)
      #pragma unroll
      for (int j = 0; j < T; j++) {
        int r = ty * T + i, c = tx * T + j;
        sa[r][c] = (row0 + i < M && k0 + c < K) ? A[(row0 + i) * K + k0 + c] : 0.f;
        sb[r][c] = (k0 + r < K && col0 + j < N) ? B[(k0 + r) * N + col0 + j] : 0.f;
      }
    __syncthreads();
    #pragma unroll
    for (int q = 0; q < BK; q++) {
      float a[T], b[T];
      #pragma unroll
      for (int i = 0; i < T; i++) { a[i] = sa[ty * T + i][q]; b[i] = sb[q][tx * T + i]; }
      #pragma unroll
      for (int i = 0; i < T; i++)
        #pragma unroll
        for (int j = 0; j < T; j++) acc[i][j] += a[i] * b[j];
    }
    __syncthreads();
  }
  #pragma unroll
  for (int i = 0; i < T; i++)
    #pragma unroll
    for (int j = 0; j < T; j++)
      if (row0 + i < M && col0 + j < N) C[(row0 + i) * N + col0 + j] = acc[i][j];
}
"""

WARP_TILED = """
constexpr int BM = 128, BN = 128, BK = 8, PAD = 4;
extern "C" __global__ void __launch_bounds__(256)
k(int M, int N, int K, const float *__restrict__ A, const float *__restrict__ B, float *C) {
  __shared__ __align__(16) float sa[2][BK][BM + PAD];
  __shared__ __align__(16) float sb[2][BK][BN + PAD];
  int tid = threadIdx.x, w = tid / 32, l = tid % 32, wr = w / 4, wc = w % 4, lr = l / 4, lc = l % 4;
  int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  int ar = tid / 2, ac = tid % 2 * 4, br = tid / 32, bc = tid % 32 * 4;
  float acc[8][8] = {};
  float4 va, vb;
  auto load = [&](int k0) {
    va = vb = float4{0, 0, 0, 0};
    if (row0 + ar < M && k0 + ac < K) va = *(const float4 *)&A[(row0 + ar) * K + k0 + ac];
    if (k0 + br < K && col0 + bc < N) vb = *(const float4 *)&B[(k0 + br) * N + col0 + bc];
  };
  auto store = [&](int s) {
    sa[s][ac][ar] = va.x; sa[s][ac + 1][ar] = va.y; sa[s][ac + 2][ar] = va.z;
    sa[s][ac + 3][ar] = va.w;
    *(float4 *)&sb[s][br][bc] = vb;
  };
  load(0); store(0); __syncthreads();
  int s = 0;
  for (int k0 = 0; k0 < K; k0 += BK) {
    if (k0 + BK < K) load(k0 + BK);
    #pragma unroll
    for (int q = 0; q < BK; q++) {
      float a[8], b[8];
      #pragma unroll
      for (int i = 0; i < 8; i += 4) {
        *(float4 *)&a[i] = *(float4 *)&sa[s][q][wr * 64 + lr * 8 + i];
        *(float4 *)&b[i] = *(float4 *)&sb[s][q][wc * 32 + lc * 8 + i];
      }
      #pragma unroll
      for (int i = 0; i < 8; i++)
        #pragma unroll
        for (int j = 0; j < 8; j++) acc[i][j] += a[i] * b[j];
    }
    if (k0 + BK < K) { store(s ^ 1); __syncthreads(); s ^= 1; }
  }
  #pragma unroll
  for (int i = 0; i < 8; i++)
    #pragma unroll
    for (int j = 0; j < 8; j++) {
      int r = row0 + wr * 64 + lr * 8 + i, c = col0 + wc * 32 + lc * 8 + j;
      if (r < M && c < N) C[r * N + c] = acc[i][j];
    }
}
"""

# name: (source, block, rows and columns of C a block, grid's x runs over rows)
KERNELS = {
    "naive": (NAIVE, (32, 32), (32, 32), True),
    "y_first": (Y_FIRST, (32, 32), (32, 32), False),
    "shared": (SHARED, (32, 32), (32, 32), False),
    "tiled": (TILED, (8, 8), (32, 32), False),
    "warp_tiled": (WARP_TILED, (256,), (128, 128), False),
}


def grid_of(name: str, m: int, n: int) -> tuple[int, int]:
    """Blocks that cover an m x n product."""
    _, _, (rows, columns), rows_first = KERNELS[name]
    down, across = -(-m // rows), -(-n // columns)
    return (down, across) if rows_first else (across, down)
