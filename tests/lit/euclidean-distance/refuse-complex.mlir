// RUN: %exla-opt %s --passes=euclidean-distance --size-threshold=64KB 2>&1 | filecheck %s

// Complex numbers are left alone.

// CHECK: refuse-complex.mlir:{{.*}}: remark: 100x80x40xcomplex<f32> (2.56MB) not multiplied out: its element type is complex<f32> [euclidean-distance, EX405]
// CHECK-NOT: stablehlo.dot_general

func.func @main(%a: tensor<100x40xcomplex<f32>>, %b: tensor<80x40xcomplex<f32>>) -> tensor<100x80xcomplex<f32>> {
  %zero = stablehlo.constant dense<(0.0, 0.0)> : tensor<complex<f32>>
  %0 = stablehlo.broadcast_in_dim %a, dims = [0, 2] : (tensor<100x40xcomplex<f32>>) -> tensor<100x80x40xcomplex<f32>>
  %1 = stablehlo.broadcast_in_dim %b, dims = [1, 2] : (tensor<80x40xcomplex<f32>>) -> tensor<100x80x40xcomplex<f32>>
  %2 = stablehlo.subtract %0, %1 : tensor<100x80x40xcomplex<f32>>
  %3 = stablehlo.multiply %2, %2 : tensor<100x80x40xcomplex<f32>>
  %4 = stablehlo.reduce(%3 init: %zero) applies stablehlo.add across dimensions = [2] : (tensor<100x80x40xcomplex<f32>>, tensor<complex<f32>>) -> tensor<100x80xcomplex<f32>>
  return %4 : tensor<100x80xcomplex<f32>>
}
