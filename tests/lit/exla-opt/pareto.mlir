// RUN: %exla-opt %s --pareto | filecheck %s
// RUN: not %exla-opt %s --pareto -o %t 2>&1 | filecheck %s --check-prefix=OUTPUT
// RUN: not %exla-opt %s --pareto --memory-limit=1GB 2>&1 | filecheck %s --check-prefix=LIMIT
// RUN: not %exla-opt %s --pareto --report=%t.json 2>&1 | filecheck %s --check-prefix=REPORT

// Memory against time: each line needs less than the one before and takes longer. The program as it came needs more
// than the first and is no faster.

// CHECK: --memory-limit  peak
// CHECK-NEXT: MB, compiled  {{[0-9.]+}} x  in slices of 16MB
// CHECK-NEXT: MB, compiled  {{[0-9.]+}} x  in slices of 4MB
// CHECK: in slices of 250KB
// CHECK: time: predicted for this machine's CPU, as multiples of the original program's
// OUTPUT: --pareto writes no module and chooses no program: leave out --output
// LIMIT: leave out --memory-limit
// REPORT: leave out --report

  func.func public @main(%arg0: tensor<4096x64xf32>, %arg1: tensor<4096x64xf32>, %arg2: tensor<4096x64xf32>) -> (tensor<4096x64xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.transpose %arg1, dims = [1, 0] : (tensor<4096x64xf32>) -> tensor<64x4096xf32>
    %1 = stablehlo.dot_general %arg0, %0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x64xf32>, tensor<64x4096xf32>) -> tensor<4096x4096xf32>
    %cst = stablehlo.constant dense<6.400000e+01> : tensor<f32>
    %2 = stablehlo.sqrt %cst : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %2, dims = [] : (tensor<f32>) -> tensor<4096x4096xf32>
    %4 = stablehlo.divide %1, %3 : tensor<4096x4096xf32>
    %cst_0 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %5 = stablehlo.reduce(%4 init: %cst_0) applies stablehlo.maximum across dimensions = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
    %cst_1 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<4096xf32>
    %7 = stablehlo.maximum %6, %5 : tensor<4096xf32>
    %8 = stablehlo.broadcast_in_dim %7, dims = [0] : (tensor<4096xf32>) -> tensor<4096x1xf32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1] : (tensor<4096x1xf32>) -> tensor<4096x4096xf32>
    %10 = stablehlo.subtract %4, %9 : tensor<4096x4096xf32>
    %11 = stablehlo.exponential %10 : tensor<4096x4096xf32>
    %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %12 = stablehlo.reduce(%11 init: %cst_2) applies stablehlo.add across dimensions = [1] : (tensor<4096x4096xf32>, tensor<f32>) -> tensor<4096xf32>
    %13 = stablehlo.broadcast_in_dim %12, dims = [0] : (tensor<4096xf32>) -> tensor<4096x1xf32>
    %14 = stablehlo.broadcast_in_dim %13, dims = [0, 1] : (tensor<4096x1xf32>) -> tensor<4096x4096xf32>
    %15 = stablehlo.divide %11, %14 : tensor<4096x4096xf32>
    %16 = stablehlo.dot_general %15, %arg2, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<4096x4096xf32>, tensor<4096x64xf32>) -> tensor<4096x64xf32>
    return %16 : tensor<4096x64xf32>
  }
