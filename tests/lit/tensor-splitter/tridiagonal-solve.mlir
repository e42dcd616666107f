// RUN: %exla-opt %s --passes=normalise,tensor-splitter,normalise --size-threshold=64KB --split-size=32KB | filecheck %s

// The right-hand sides of LAPACK's tridiagonal solve are cut. Every tile's factored diagonals and error code are
// those of the whole: the loop brings the last ones out.

// CHECK-LABEL: func.func {{.*}}@main(
// CHECK-SAME: %[[LOW:[^:]*]]: tensor<64xf64>, %[[MAIN:[^:]*]]: tensor<64xf64>, %[[UP:[^:]*]]: tensor<64xf64>
// CHECK: %[[LOOP:.*]]:3 = stablehlo.while(%{{.*}} = %{{.*}}, %[[CODE:.*]] = %{{.*}}, %[[SUMS:.*]] = %{{.*}}) : tensor<i32>, tensor<i32>, tensor<400xf64>
// CHECK: %[[SOLVED:.*]]:5 = stablehlo.custom_call @lapack_dgtsv_ffi(%[[LOW]], %[[MAIN]], %[[UP]], %{{.*}}) {{.*}} -> (tensor<64xf64>, tensor<64xf64>, tensor<64xf64>, tensor<64x50xf64>, tensor<i32>)
// CHECK: stablehlo.tanh %[[SOLVED]]#3
// CHECK: stablehlo.return %{{.*}}, %[[SOLVED]]#4, %{{.*}} : tensor<i32>, tensor<i32>, tensor<400xf64>
// CHECK: return %[[LOOP]]#2, %[[LOOP]]#1

func.func @main(%low: tensor<64xf64>, %main: tensor<64xf64>, %up: tensor<64xf64>, %v: tensor<400xf64>) -> (tensor<400xf64>, tensor<i32>) {
  %zero = stablehlo.constant dense<0.0> : tensor<f64>
  %0 = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<400xf64>) -> tensor<64x400xf64>
  %1 = stablehlo.sine %0 : tensor<64x400xf64>
  %2:5 = stablehlo.custom_call @lapack_dgtsv_ffi(%low, %main, %up, %1) {backend_config = "", mhlo.backend_config = {}, operand_layouts = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>, dense<[0, 1]> : tensor<2xindex>], result_layouts = [dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>, dense<0> : tensor<1xindex>, dense<[0, 1]> : tensor<2xindex>, dense<> : tensor<0xindex>]} : (tensor<64xf64>, tensor<64xf64>, tensor<64xf64>, tensor<64x400xf64>) -> (tensor<64xf64>, tensor<64xf64>, tensor<64xf64>, tensor<64x400xf64>, tensor<i32>)
  %3 = stablehlo.tanh %2#3 : tensor<64x400xf64>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<64x400xf64>, tensor<f64>) -> tensor<400xf64>
  return %4, %2#4 : tensor<400xf64>, tensor<i32>
}
